//go:build cluster

package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Certificate of cert-manager's and the Secret that it fills.
type certificate struct{ name, secret string }

var (
	authority = certificate{"butler-ipam-ca", "butler-ipam-ca"}
	serving   = certificate{"butler-ipam-webhook", "butler-ipam-webhook-tls"}
)

// rotation makes the CA and the serving certificate anew, as they are when their time
// comes, and, for the second time, from nothing: then the CA has another key too, which
// takes the two of them out of step until the kubelet has brought the new certificate to
// every pod.
func rotation(t *testing.T) {
	for _, r := range []struct {
		name   string
		rotate func(*testing.T, certificate)
	}{
		{"Renewed", renew},
		{"RenewedAgain", renew},
		{"SecretsDeleted", func(t *testing.T, c certificate) { kubectl(t, "delete", "secret", "--namespace="+namespace, c.secret) }},
	} {
		t.Run(r.name, func(t *testing.T) {
			settled(t)
			underLoad(t, func() {
				ca := reissued(t, authority, r.rotate)
				if err := reissued(t, serving, r.rotate).CheckSignatureFrom(ca); err != nil {
					t.Errorf("the new certificate is not the new CA's: %v", err)
				}
				until(t, "the API server trusts the new CA", func() error { return trusted(t, ca) })
				until(t, "every pod serves the new certificate", func() error {
					leaf, err := stored(t, serving) // cert-manager may have issued one more
					if err != nil {
						return err
					}
					for _, pod := range settled(t) {
						shown, err := served(pod.Status.PodIP)
						if err != nil {
							return err
						}
						if !shown.Equal(leaf) {
							return fmt.Errorf("%s serves another", pod.Name)
						}
					}
					return nil
				})
			})
		})
	}
}

// renew asks cert-manager for a new certificate, as cmctl renew does.
func renew(t *testing.T, c certificate) {
	kubectl(t, "patch", "certificate", "--namespace="+namespace, c.name, "--subresource=status", "--type=merge",
		`--patch={"status":{"conditions":[{"type":"Issuing","status":"True","reason":"ManuallyTriggered","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
}

// reissued has a certificate rotated and gives the new one.
func reissued(t *testing.T, c certificate, rotate func(*testing.T, certificate)) *x509.Certificate {
	t.Helper()
	before, err := stored(t, c)
	if err != nil {
		t.Fatal(err)
	}
	rotate(t, c)
	var after *x509.Certificate
	until(t, "a new certificate of "+c.name, func() error {
		after, err = stored(t, c)
		if err == nil && after.Equal(before) {
			return errors.New("it is the old one")
		}
		return err
	})
	return after
}

// stored is what the Secret of a certificate holds.
func stored(t *testing.T, c certificate) (*x509.Certificate, error) {
	t.Helper()
	var secret corev1.Secret
	if err := admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: c.secret}, &secret); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if block == nil {
		return nil, errors.New("the Secret holds none")
	}
	return x509.ParseCertificate(block.Bytes)
}

// trusted is nil when every webhook's configuration has a CA in its bundle.
func trusted(t *testing.T, ca *x509.Certificate) error {
	t.Helper()
	var (
		mutating   admissionregistrationv1.MutatingWebhookConfiguration
		validating admissionregistrationv1.ValidatingWebhookConfiguration
	)
	err := errors.Join(
		admin.Get(t.Context(), types.NamespacedName{Name: "zz-butler-ipam"}, &mutating), admin.Get(t.Context(), types.NamespacedName{Name: "butler-ipam"}, &validating))
	if err != nil {
		return err
	}
	bundles := map[string][]byte{}
	for _, w := range mutating.Webhooks {
		bundles[w.Name] = w.ClientConfig.CABundle
	}
	for _, w := range validating.Webhooks {
		bundles[w.Name] = w.ClientConfig.CABundle
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	for name, bundle := range bundles {
		if !bytes.Contains(bundle, bytes.TrimSpace(text)) {
			return fmt.Errorf("%s is called with another bundle", name)
		}
	}
	return nil
}

// served is the certificate that a pod shows.
func served(ip string) (*x509.Certificate, error) {
	connection, err := tls.Dial("tcp", net.JoinHostPort(ip, "9443"), &tls.Config{InsecureSkipVerify: true}) // it is looked at, not trusted
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0], nil
}
