package butler

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
	"butlerlabs.dev/ipam/webhooks"
)

// unserving is a replica in the test's own process which never takes the journal.
type unserving struct {
	*httptest.Server
	mux   http.ServeMux
	calls atomic.Int64
}

func (u *unserving) Register(path string, hook http.Handler) {
	u.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		u.calls.Add(1)
		hook.ServeHTTP(w, r)
	})
}

func startUnserving(t *testing.T, certificates string) *unserving {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(certificates, "tls.crt"), filepath.Join(certificates, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	u := &unserving{}
	webhooks.Register(u, webhooks.Options{APIs: []webhooks.API{webhooks.Butler}, Ledger: ledger.New(ledger.Config{Log: logr.Discard()}), Log: logr.Discard()})
	u.Server = httptest.NewUnstartedServer(&u.mux)
	u.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	u.StartTLS()
	t.Cleanup(u.Close)
	return u
}

func TestFailover_ReplicaThatCannotServe(t *testing.T) {
	t.Parallel()
	own, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1})
	if err := c.Create(t.Context(), pool(sandbox.Namespace, "10.80.0.0/24")); err != nil {
		t.Fatal(err)
	}
	idle := startUnserving(t, own.WebhookCertDir())
	own.Front().Add("idle", idle.Listener.Addr().String(), func() bool { return true })
	for i, err := range byMany(8, 40, func(i int) error {
		return c.Create(t.Context(), claim(sandbox.Namespace, fmt.Sprintf("a-%d", i), 1))
	}) {
		if err != nil {
			t.Errorf("create %d: %v", i, err)
		}
	}
	if idle.calls.Load() == 0 {
		t.Error("no call reached the replica that cannot serve: the test shows nothing")
	}
}
