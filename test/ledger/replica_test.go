package ledger

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers"
	"butlerlabs.dev/ipam/reconcilers/clusters"
	claimhistory "butlerlabs.dev/ipam/reconcilers/history"
	"butlerlabs.dev/ipam/test/sandbox"
)

// replica is the part of a manager behind the webhooks, in this process: what it says to
// the API server, and hears from it, can be owned up.
type replica struct {
	ledger *ledger.Ledger
	road   *road
	stop   func() // in good order
}

// startReplica starts one that gives its calls a name.
func startReplica(t *testing.T, s *sandbox.Sandbox, known *runtime.Scheme, name string) *replica {
	t.Helper()
	r := &replica{road: &road{blocked: map[string]chan struct{}{}, waiting: map[string]int{}}}
	kube := s.Config()
	kube.QPS, kube.WarningHandler = -1, rest.NoWarnings{}
	kube.Wrap(func(next http.RoundTripper) http.RoundTripper { return traffic{r.road, next} })
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mgr, err := manager.New(kube, manager.Options{
		Scheme: known, Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	check(err)
	store, err := journal.NewLeaseStore(kube, sandbox.ManagerNamespace, time.Second)
	check(err)
	claims, pools := reconcilers.Metal3.Resources()
	changes := reconcilers.NewChanges(reconcilers.Metal3)
	r.ledger = ledger.New(ledger.Config{
		Store: store, Identity: journal.NewIdentity(name, ""), ClaimResources: claims, PoolResources: pools,
		GrantLife: grantLife, Timing: journal.Timing{Expiry: takeOverAfter}, Log: logr.Discard(), Changed: changes.Notify,
	})
	ctx, cancel := context.WithCancel(t.Context())
	recorded := claimhistory.New(logr.Discard(), time.Now)
	recorded.SetLedger(r.ledger)
	feed, err := reconcilers.NewFeed(ctx, mgr, r.ledger, recorded, []reconcilers.API{reconcilers.Metal3}, nil)
	check(err)
	watcher, err := clusters.New(kube, logr.Discard())
	check(err)
	check(mgr.Add(watcher))
	check(reconcilers.Register(ctx, mgr, reconcilers.Options{
		Ledger: r.ledger, History: recorded, APIs: []reconcilers.API{reconcilers.Metal3}, Changes: changes, Recorder: &record.FakeRecorder{}, Now: time.Now, Clusters: watcher,
	}))
	var ended sync.WaitGroup
	ended.Go(func() {
		if feed.Synced(ctx) {
			_ = r.ledger.Run(ctx, feed)
		}
	})
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("replica %s: %v", name, err)
		}
	})
	r.stop = func() {
		cancel()
		ended.Wait()
	}
	t.Cleanup(r.stop)
	select {
	case <-mgr.Elected(): // one that is stopped while it starts would not end
	case <-time.After(patience):
		t.Fatalf("replica %s does not start", name)
	}
	return r
}

// The times of a replica here are short: nothing else works on this control plane.
const (
	grantLife     = 3 * time.Second
	takeOverAfter = 2 * time.Second
)

// road is between a replica and the API server. What goes along there has a name: a
// method, or "watch", and a resource.
type road struct {
	mu      sync.Mutex
	blocked map[string]chan struct{} // name -> closed when it is free again
	waiting map[string]int           // name -> how much of it
}

// block holds up what has a name until it is freed.
func (r *road) block(name string) (free func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	freed := make(chan struct{})
	r.blocked[name] = freed
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.blocked, name)
		close(freed)
	})
}

// owned is how much of a name waits.
func (r *road) owned(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[name]
}

func (r *road) pass(ctx context.Context, name string) {
	r.mu.Lock()
	freed := r.blocked[name]
	r.mu.Unlock()
	if freed == nil {
		return
	}
	r.count(name, 1)
	defer r.count(name, -1)
	select {
	case <-freed:
	case <-ctx.Done():
	}
}

func (r *road) count(name string, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[name] += by
}

// traffic is the calls of a replica.
type traffic struct {
	*road
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t traffic) RoundTrip(request *http.Request) (*http.Response, error) {
	_, path, _ := strings.Cut(request.URL.Path, "/apis/")
	resource := path
	for part := range strings.SplitSeq(path, "/") {
		if part == "ipaddresses" || part == "leases" {
			resource = part
		}
	}
	if request.URL.Query().Get("watch") == "" {
		t.pass(request.Context(), request.Method+" "+resource)
		return t.next.RoundTrip(request)
	}
	response, err := t.next.RoundTrip(request)
	if err == nil {
		response.Body = events{response.Body, func() { t.pass(request.Context(), "watch "+resource) }}
	}
	return response, err
}

// events are those of a watch.
type events struct {
	io.ReadCloser
	pass func()
}

// Read implements io.Reader.
func (e events) Read(into []byte) (int, error) {
	n, err := e.ReadCloser.Read(into)
	e.pass()
	return n, err
}
