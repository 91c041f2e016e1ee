//go:build cluster

package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// console installs the console, and reads its pages through the Service, as a person with
// a token, whose rights are in one namespace.
func console(t *testing.T) {
	helm(t, "upgrade", withValues("console.enabled=true")...)
	defer helm(t, "upgrade", withValues()...)
	kubectl(t, "create", "serviceaccount", "reader")
	defer kubectl(t, "delete", "serviceaccount", "reader")
	kubectl(t, "create", "clusterrolebinding", "reader-console", "--clusterrole=butler-ipam-console-user", "--serviceaccount=default:reader")
	defer kubectl(t, "delete", "clusterrolebinding", "reader-console")
	kubectl(t, "create", "rolebinding", "reader-view", "--clusterrole=butler-ipam-viewer", "--serviceaccount=default:reader")
	defer kubectl(t, "delete", "rolebinding", "reader-view")
	token := strings.TrimSpace(kubectl(t, "create", "token", "reader"))

	authority, err := base64.StdEncoding.DecodeString(kubectl(t, "get", "secret/butler-ipam-console-tls", "--namespace="+namespace, `--output=jsonpath={.data.ca\.crt}`))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatalf("no certificate in ca.crt: %s", authority)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "butler-ipam-console." + namespace + ".svc"}}}
	address := "https://" + kubectl(t, "get", "service/butler-ipam-console", "--namespace="+namespace, "--output=jsonpath={.spec.clusterIP}")
	get := func(path, token string) (string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, http.NoBody)
		if err != nil {
			return "", err
		}
		if token != "" {
			request.SetBasicAuth("reader", token)
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return fmt.Sprint(response.StatusCode, " ", string(text)), err
	}
	until(t, "the pages of the console", func() error {
		text, err := get("/pools?namespace=default", token)
		if err == nil && (!strings.HasPrefix(text, "200 ") || !strings.Contains(text, "NetworkPool%2Fdefault%2Ffirst")) {
			err = fmt.Errorf("the pool is not on the page: %s", text)
		}
		return err
	})
	if text, err := get("/pools", ""); err != nil || !strings.HasPrefix(text, "401 ") || strings.Contains(text, "first") {
		t.Errorf("without a token: %v, %s", err, text)
	}
	if names := kubectl(t, "get", "pods", "--namespace="+namespace, "--selector=app.kubernetes.io/name=butler-ipam", "--output=name"); strings.Contains(names, "console") {
		t.Errorf("the selector of the manager selects %s", names)
	}
}
