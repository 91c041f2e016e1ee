package butler

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/test/suite"
	"butlerlabs.dev/ipam/webhooks"
)

// review is an AdmissionReview as the API server would send it for a claim on a pool that
// does not exist, so that whatever a change to its bytes turns it into, it can be granted
// nothing.
func review(namespace string) string {
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"CREATE","namespace":%q,"name":"a",
"kind":{"group":"butler.butlerlabs.dev","version":"v1alpha1","kind":"IPAllocation"},
"resource":{"group":"butler.butlerlabs.dev","version":"v1alpha1","resource":"ipallocations"},
"object":{"apiVersion":"butler.butlerlabs.dev/v1alpha1","kind":"IPAllocation","metadata":{"name":"a","namespace":%q},
"spec":{"poolRef":{"name":"no-such-pool"},"tenantClusterRef":{"name":"web","namespace":"team-a"},"type":"nodes","count":4}}}}`, namespace, namespace)
}

// port speaks to the manager's webhook port without an API server between.
func port(t *testing.T) func(path string, body []byte) (int, []byte) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cluster.Config().CAData)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: 8}}
	t.Cleanup(c.CloseIdleConnections)
	base := "https://" + cluster.Managers()[0].WebhookAddress
	return func(path string, body []byte) (int, []byte) {
		resp, err := c.Post(base+path, "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatalf("no answer to %.80q: %v", body, err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("half an answer to %.80q: %v", body, err)
		}
		return resp.StatusCode, text
	}
}

// saysNo tells whether an answer is a clear one: an HTTP error with a text, or a review
// that does not allow, and says why.
func saysNo(code int, text []byte) error {
	if code >= 400 && code < 500 && len(bytes.TrimSpace(text)) > 0 {
		return nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &review); code != http.StatusOK || err != nil || review.Response == nil {
		return fmt.Errorf("HTTP %d %.200q is no answer to an admission review", code, text)
	}
	switch r := review.Response; {
	case r.Allowed:
		return fmt.Errorf("it is allowed")
	case r.Result == nil || r.Result.Message == "" || r.Result.Code < 400 || r.Result.Code == http.StatusInternalServerError:
		return fmt.Errorf("the refusal %v does not say why", r.Result)
	}
	return nil
}

func TestAdmissionReview_Malformed(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.70.0.0/28"))
	send := port(t)
	paths := []string{webhooks.MutateIPAllocation, webhooks.ValidateIPAllocation, webhooks.ValidateNetworkPool, webhooks.ValidateDeleteNetworkPool}
	good := review(ns)

	for name, body := range map[string]string{
		"nothing":                "",
		"null":                   "null",
		"a number":               "7",
		"an array":               "[]",
		"an empty object":        "{}",
		"half a review":          good[:len(good)/2],
		"no request":             `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
		"a request of null":      `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`,
		"an empty request":       `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}`,
		"a request that is text": `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":"create"}`,
		"another version":        strings.Replace(good, "admission.k8s.io/v1", "admission.k8s.io/v7", 1),
		"another kind of review": strings.Replace(good, "AdmissionReview", "ConversionReview", 1),
		"an object that is text": strings.Replace(good, `"object":{`, `"object":"x","was":{`, 1),
		"an object of null":      strings.Replace(good, `"object":{`, `"object":null,"was":{`, 1),
		"no object":              strings.Replace(good, `"object":{`, `"was":{`, 1),
		"an unknown operation":   strings.Replace(good, "CREATE", "DESTROY", 1),
		"no operation":           strings.Replace(good, `"operation":"CREATE",`, "", 1),
		"no namespace":           strings.Replace(good, fmt.Sprintf(`"namespace":%q,"name":"a"`, ns), `"name":"a"`, 1),
		"another kind":           strings.Replace(good, `"kind":"IPAllocation"},`, `"kind":"Secret"},`, 1),
		"an update of nothing":   strings.Replace(good, "CREATE", "UPDATE", 1),
		"ten thousand brackets":  strings.Repeat("[", 10000),
		"deep nesting":           `{"request":` + strings.Repeat(`{"a":`, 20000),
		"3 MiB and more":         `{"a":"` + strings.Repeat("x", 4<<20) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range paths {
				if err := saysNo(send(path, []byte(body))); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}

	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		body := make([]byte, random.IntN(2000))
		for i := range body {
			body[i] = byte(random.Uint32())
		}
		if err := saysNo(send(paths[random.IntN(len(paths))], body)); err != nil {
			t.Errorf("random bytes %q: %v", body, err)
		}
	}
	for range 1000 { // what still is a review may be allowed, every other one must be refused
		body := []byte(good)
		for range 1 + random.IntN(4) {
			body[random.IntN(len(body))] = byte(random.Uint32())
		}
		code, text := send(paths[random.IntN(len(paths))], body)
		var answer admissionv1.AdmissionReview
		if json.Unmarshal(text, &answer) == nil && answer.Response != nil && answer.Response.Allowed {
			continue
		}
		if err := saysNo(code, text); err != nil {
			t.Errorf("review %q: %v", body, err)
		}
	}

	if lines := openGrants(t, ns); len(lines) > 0 {
		t.Errorf("%d grants are open, want none", len(lines))
	}
	suite.Create(t, admin, claim(ns, "all", 16))
	manager := cluster.Managers()[0]
	select {
	case <-manager.Exited():
		t.Error("the manager has ended")
	default:
	}
	log, err := os.ReadFile(manager.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	if at := strings.Index(string(log), "Panicked"); at >= 0 {
		t.Errorf("the manager panicked: %.2000s", log[at:])
	}
}

func TestAdmissionReview_TimeoutCostsNoAddress(t *testing.T) {
	const n = 300
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.71.0.0/20"), claim(ns, "first", 1)) // once this one is answered, the manager knows the pool
	send := port(t)
	type call struct {
		sent  time.Time
		patch string
	}
	answered := map[uint64]call{} // by hash of the claim's name
	for i := range n {
		name, sent := fmt.Sprintf("a-%d", i), time.Now()
		body := strings.NewReplacer("no-such-pool", "pool", `"name":"a"`, fmt.Sprintf(`"name":%q`, name)).Replace(review(ns))
		timeout := time.Duration(400_000 * math.Pow(1.03, float64(i))) // from less than a commit takes to far more
		path := fmt.Sprintf("%s?timeout=%s", webhooks.MutateIPAllocation, timeout)
		code, text := send(path, []byte(body))
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(text, &answer); code != http.StatusOK || err != nil || answer.Response == nil {
			t.Fatalf("HTTP %d %q", code, text)
		}
		switch r := answer.Response; {
		case r.Allowed:
			answered[journal.HashName(name)] = call{sent, string(r.Patch)}
		case r.Result.Code != http.StatusServiceUnavailable || r.Result.Details.RetryAfterSeconds < 1:
			t.Errorf("want a refusal with 503 after which the client tries again, got: %v", r.Result)
		}
	}
	if len(answered) == 0 || len(answered) == n {
		t.Errorf("%d of %d calls were answered: the test shows nothing", len(answered), n)
	}
	open := journalEntries(t)
	young := 0
	for _, c := range answered { // on a slow machine the calls take longer than a grant lives
		if age := time.Since(c.sent); age < grantLife {
			young++
			if !slices.ContainsFunc(open, func(e journal.Entry) bool { return strings.Contains(c.patch, e.Token.String()) }) {
				t.Errorf("a call that was answered %s ago has no open grant", age)
			}
		}
	}
	if young == 0 {
		t.Error("every grant has expired: the test shows nothing")
	}
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		for _, l := range openGrants(t, ns) {
			if answered[l.NameHash].sent.IsZero() {
				return fmt.Errorf("a grant of %v is open, and its call was refused", l.Ranges)
			}
		}
		return nil
	})
}
