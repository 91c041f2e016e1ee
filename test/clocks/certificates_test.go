package clocks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"butlerlabs.dev/ipam/reconcilers/apiserver"
	"butlerlabs.dev/ipam/test/suite"
	"butlerlabs.dev/ipam/webhooks/certificates"
)

const host = "webhook.test.svc"

// keeper runs what keeps a certificate in a Secret, on a machine whose clock is off.
func keeper(t *testing.T, secret *corev1.Secret, off func(time.Time) time.Time) *certificates.SelfManaged {
	t.Helper()
	kept := certificates.NewSelfManaged(certificates.SelfManagedConfig{
		Secret: types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}, Host: host, Life: time.Hour, Log: logr.Discard(),
		Now: func() time.Time { return off(time.Now()) },
		NewServerClock: func() certificates.ServerClock {
			return apiserver.NewClock(func() time.Time { return off(time.Now()) })
		},
	})
	scheme := runtime.NewScheme()
	if err := certificates.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mgr, err := manager.New(cluster.Config(), manager.Options{
		Scheme: scheme, Logger: logr.Discard(), Cache: cache.Options{ByObject: kept.Caches()}, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return kept
}

func right(t time.Time) time.Time { return t }

func years(n int) func(time.Time) time.Time {
	return func(t time.Time) time.Time { return t.AddDate(n, 0, 0) }
}

func newSecret(t *testing.T, data map[string][]byte) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: suite.CreateNamespace(t, admin), Name: "certificates"}, Data: data}
	suite.Create(t, admin, s)
	return s
}

// serves waits until a certificate is served that an API server can accept now.
func serves(t *testing.T, kept *certificates.SelfManaged) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		shown, err := kept.GetCertificate(nil)
		if err != nil {
			return err
		}
		_, err = shown.Leaf.Verify(x509.VerifyOptions{Roots: kept.Authorities(), DNSName: host})
		return err
	})
}

// authorityOf is an authority that is valid from a time on, as the Secret holds it.
func authorityOf(t *testing.T, from time.Time) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "butler-ipam-ca"}, NotBefore: from, NotAfter: from.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), "ca.key": text}
}

// counted counts the versions of a Secret from now on.
func counted(t *testing.T, s *corev1.Secret, each func(*corev1.Secret)) (versions func() int) {
	t.Helper()
	suite.Read(t, admin, s)
	w, err := admin.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace(s.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: s.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	n := make(chan int, 1)
	n <- 0
	go func() {
		for e := range w.ResultChan() {
			n <- <-n + 1
			if stored, ok := e.Object.(*corev1.Secret); ok && each != nil {
				each(stored)
			}
		}
	}()
	t.Cleanup(w.Stop)
	return func() int {
		now := <-n
		n <- now
		return now
	}
}

func TestSelfManaged_AuthorityNotYetValidIsReplaced(t *testing.T) {
	for name, from := range map[string]time.Duration{"for_two_hours": 2 * time.Hour, "for_ten_years": 10 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newSecret(t, authorityOf(t, time.Now().Add(from)))
			versions := counted(t, s, nil)
			kept := keeper(t, s, right)
			serves(t, kept)
			if n := versions(); n > 3 {
				t.Errorf("the Secret was written %d times", n)
			}
			if why, _ := kept.Trouble(); why != "" {
				t.Error(why)
			}
		})
	}
}

func TestSelfManaged_OneWrongClockReplacesNothing(t *testing.T) {
	for name, off := range map[string]func(time.Time) time.Time{"ten_years_ahead": years(10), "ten_years_behind": years(-10), "ahead_by_two_days": func(t time.Time) time.Time { return t.Add(48 * time.Hour) }} {
		t.Run(name, func(t *testing.T) {
			s := newSecret(t, nil)
			serves(t, keeper(t, s, right))
			suite.Read(t, admin, s)
			wrong := keeper(t, s, off)
			suite.Eventually(t, suite.Soon, func(context.Context) error {
				if why, _ := wrong.Trouble(); !strings.Contains(why, "the clock of this machine") || !strings.Contains(why, "differ by more than 10m0s") {
					return fmt.Errorf("it says %q", why)
				}
				return nil
			})
			serves(t, wrong) // as the right one does
			before := s.ResourceVersion
			if after := suite.Read(t, admin, s).ResourceVersion; after != before {
				t.Errorf("the Secret was written: version %s, before %s", after, before)
			}
		})
	}
}

// Nothing is taken from anybody, and the API server's time is what certificates are
// judged by.
func TestSelfManaged_FirstCertificateUsesTheAPIServersTime(t *testing.T) {
	s := newSecret(t, nil)
	serves(t, keeper(t, s, years(-10)))
}

func TestSelfManaged_RevertedWritesAreRepeatedWithBackoff(t *testing.T) {
	s := newSecret(t, map[string][]byte{"tls.crt": []byte("junk")})
	versions := counted(t, s, func(stored *corev1.Secret) {
		if string(stored.Data["tls.crt"]) != "junk" {
			stored.Data = map[string][]byte{"tls.crt": []byte("junk")}
			_ = admin.Update(t.Context(), stored)
		}
	})
	kept := keeper(t, s, right)
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		if n := versions(); n < 6 {
			return fmt.Errorf("%d versions", n)
		}
		if why, _ := kept.Trouble(); !strings.Contains(why, "cannot be served") {
			return errors.New("it says nothing of it: " + why)
		}
		return nil
	})
	const while = 4 * time.Second // in which it may repair three times: the pauses have grown to 200 ms and more
	before := versions()
	<-time.After(while)
	if n := versions() - before; n > 10 {
		t.Errorf("%d versions in %s", n, while)
	}
}
