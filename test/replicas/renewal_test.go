package replicas

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// served returns the certificate that a manager presents.
func served(ctx context.Context, m *sandbox.Manager) (*x509.Certificate, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	connection, err := dialer.DialContext(ctx, "tcp", m.WebhookAddress)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// Kubelets update a renewed Secret in their pods at different times: in between, replicas
// have different certificates.
func TestRenewal_OfCertificateAndAuthority(t *testing.T) {
	l := startLoad(t)
	for range 2 {
		if err := cluster.RenewAuthority(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, m := range cluster.Managers() {
			before, err := served(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if err := cluster.RenewCertificate(m); err != nil {
				t.Fatal(err)
			}
			suite.Eventually(t, patience, func(ctx context.Context) error {
				now, err := served(ctx, m)
				if err == nil && now.Equal(before) {
					err = errors.New("the former certificate is served")
				}
				return err
			})
			for _, peer := range cluster.Managers() {
				peer.Peers.Set("", sandbox.Condition{Cut: sandbox.Reset}) // else calls go over connections that were made before
				peer.Peers.Set("", sandbox.Condition{})
			}
			l.Await(5 * clients)
		}
	}
	_, failures := l.Stop()
	noFailure(t, failures)
}

// selfManaged runs a test on a cluster of its own, whose managers create their own
// certificates.
func selfManaged(t *testing.T, replicas int, life string) {
	t.Helper()
	own, err := sandbox.Start(t.Context(), sandbox.Options{SelfManaged: true, Links: true, ManagerArgs: []string{"--log-level=debug", "--webhook-cert-duration=" + life}})
	if err != nil {
		t.Fatal(err)
	}
	shared, sharedAdmin := cluster, admin
	t.Cleanup(func() {
		cluster, admin = shared, sharedAdmin
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	cluster = own
	if admin, err = client.New(own.Config(), client.Options{Scheme: sharedAdmin.Scheme()}); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join("..", "..")
	helm := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "helm"), "template", "butler-ipam", filepath.Join(root, "charts", "butler-ipam"),
		"--namespace="+sandbox.ManagerNamespace, "--set=certificates.mode=self-managed", "--show-only=templates/certificates.yaml")
	var problems bytes.Buffer
	helm.Stderr = &problems
	text, err := helm.Output()
	if err != nil {
		t.Fatalf("helm: %v: %s", err, problems.String())
	}
	if _, _, err := own.Kubectl(t.Context(), string(text), "apply", "--server-side", "--filename=-"); err != nil {
		t.Fatal(err)
	}
	if err := own.InstallWebhooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	for range replicas {
		go func() {
			_, err := own.AddManager(t.Context())
			started <- err
		}()
	}
	for range replicas {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
}

// stored returns the Secret in which the managers store their certificates.
func stored(t *testing.T) *corev1.Secret {
	t.Helper()
	var secret corev1.Secret
	if err := admin.Get(t.Context(), types.NamespacedName{Namespace: sandbox.ManagerNamespace, Name: "butler-ipam-certificates"}, &secret); err != nil {
		t.Fatal(err)
	}
	return &secret
}

// allServe waits until every manager presents the stored certificate and the API server
// trusts the stored authorities.
func allServe(t *testing.T) {
	t.Helper()
	suite.Eventually(t, patience, func(ctx context.Context) error {
		secret := stored(t)
		pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			return err
		}
		for _, m := range cluster.Managers() {
			if c, err := served(ctx, m); err != nil || !c.Equal(pair.Leaf) {
				return errors.Join(err, fmt.Errorf("%s does not serve what is stored", m.Name()))
			}
		}
		var mutating admissionv1.MutatingWebhookConfiguration
		var validating admissionv1.ValidatingWebhookConfiguration
		if err := errors.Join(admin.Get(ctx, types.NamespacedName{Name: "zz-butler-ipam"}, &mutating), admin.Get(ctx, types.NamespacedName{Name: "butler-ipam"}, &validating)); err != nil {
			return err
		}
		var configs []admissionv1.WebhookClientConfig
		for _, w := range mutating.Webhooks {
			configs = append(configs, w.ClientConfig)
		}
		for _, w := range validating.Webhooks {
			configs = append(configs, w.ClientConfig)
		}
		for _, c := range configs {
			if !bytes.Equal(c.CABundle, secret.Data["ca.crt"]) {
				return fmt.Errorf("the API server does not trust what is stored: %s", c.CABundle)
			}
		}
		return nil
	})
}

// signer returns the key ID of the authority that signed the stored certificate.
func signer(t *testing.T) string {
	t.Helper()
	data := stored(t).Data
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	return string(pair.Leaf.AuthorityKeyId)
}

func TestRenewal_BySelfManagedReplicas(t *testing.T) {
	selfManaged(t, 3, "1m")
	allServe(t)
	l := startLoad(t)
	for range 2 {
		was := signer(t)
		// Without the key there must be another authority, which signs when everybody has
		// had time to trust it.
		secret := stored(t)
		delete(secret.Data, "ca.key")
		if err := admin.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		// Whoever installs the webhooks does it again meanwhile, as GitOps does, and
		// knows of no authority.
		if err := cluster.InstallWebhooks(t.Context()); err != nil {
			t.Fatal(err)
		}
		suite.Eventually(t, patience, func(context.Context) error {
			if signer(t) == was {
				return errors.New("the former authority signs")
			}
			return nil
		})
		allServe(t)
		l.Await(5 * clients)
	}
	// A replica that comes later has the same.
	if _, err := cluster.AddManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	allServe(t)
	_, failures := l.Stop()
	noFailure(t, failures)
}
