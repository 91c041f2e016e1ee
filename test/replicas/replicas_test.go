package replicas

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/test/load"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
	"butlerlabs.dev/ipam/webhooks"
)

const (
	patience = time.Minute
	clients  = 16
)

// One cluster with three managers serves the whole package; the tests take turns.
var (
	cluster *sandbox.Sandbox
	admin   client.Client
	pools   int // so far: each has addresses of its own
)

func TestMain(m *testing.M) {
	suite.Main(m, sandbox.Options{Replicas: 3, Links: true, ManagerArgs: []string{"--log-level=debug", "--grant-expiry=45s"}}, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		admin, err = suite.NewClient(s, func(config *rest.Config) {
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &sentBack{next} })
		})
		return err
	})
}

// sentBack counts the responses with which the API server asked the client to repeat a
// call; client-go repeats such calls.
type sentBack struct{ http.RoundTripper }

var sentBackCount atomic.Int64

func (s *sentBack) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode >= http.StatusInternalServerError {
		sentBackCount.Add(1)
	}
	return response, err
}

// nextNetwork returns a network that no other pool uses.
func nextNetwork(bits int) string {
	pools++
	return fmt.Sprintf("10.%d.0.0/%d", pools, bits)
}

func newPool(t *testing.T, bits int) (namespace string) {
	t.Helper()
	return load.NewPool(t, admin, nextNetwork(bits))
}

func startLoad(t *testing.T) *load.Load {
	t.Helper()
	return load.Start(t, admin, nextNetwork(16), clients)
}

// leader returns the manager that is the leader according to the Lease.
func leader(t *testing.T) *sandbox.Manager {
	t.Helper()
	var lease coordinationv1.Lease
	name := types.NamespacedName{Namespace: sandbox.ManagerNamespace, Name: journal.LeaseName}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err := admin.Get(t.Context(), name, &lease); err != nil {
			t.Fatal(err)
		}
		for _, m := range cluster.Managers() {
			if lease.Spec.HolderIdentity != nil && journal.AddressOf(*lease.Spec.HolderIdentity) == m.PeerAddress {
				return m
			}
		}
	}
	t.Fatalf("no manager is the leader: %v", lease.Spec.HolderIdentity)
	return nil
}

// startAgain restarts a manager that has ended, and waits until it serves.
func startAgain(t *testing.T, m *sandbox.Manager) {
	t.Helper()
	_ = m.Wait(t.Context()) // how it ended is the test's business
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// counted returns the sum of the samples of a manager's metric with matching labels.
func counted(t *testing.T, m *sandbox.Manager, metric, labels string) (sum float64) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.MetricsAddress+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		sample := regexp.MustCompile(`^` + metric + `\{(.*)\} (\S+)`).FindStringSubmatch(line)
		if sample == nil || !strings.Contains(sample[1], labels) {
			continue
		}
		value, err := strconv.ParseFloat(sample[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

func noFailure(t *testing.T, failures []error) {
	t.Helper()
	for _, err := range failures {
		t.Errorf("a create failed: %v", err)
	}
}

func TestReplicas_EachResponds(t *testing.T) {
	namespace := newPool(t, 29)
	passedOn := func(m *sandbox.Manager) float64 {
		return counted(t, m, "butler_ipam_admission_duration_seconds_count", `result="forwarded"`)
	}
	owned := leader(t)
	for _, m := range cluster.Managers() {
		before := passedOn(m)
		a := ask(t.Context(), m, webhooks.MutateIPAllocation, load.Claim(namespace, m.Name()))
		if a.err != nil || a.response == nil || !a.response.Allowed || a.stored.Spec.PinnedRange == nil {
			t.Errorf("%s does not answer with a range: %+v", m.Name(), a)
		}
		if calls := passedOn(m) - before; (calls == 0) != (m == owned) {
			t.Errorf("%s has passed on %g calls; %s holds the journal", m.Name(), calls, owned.Name())
		}
	}
}

func TestRollout_CostsNoCreate(t *testing.T) {
	l := startLoad(t)
	for range 3 {
		was := leader(t)
		if err := was.Terminate(); err != nil {
			t.Fatal(err)
		}
		l.Await(5 * clients)
		if is := leader(t); is == was {
			t.Errorf("%s ends and still holds the journal", was.Name())
		}
		startAgain(t, was)
	}
	_, failures := l.Stop()
	noFailure(t, failures)
}

// Calls under way to a killed replica are lost. The API server repeats a mutating call. A
// lost validating call fails the create, which leaves no object, and the create succeeds
// when the client repeats it.
func TestFailover_DeadLeader(t *testing.T) {
	l := startLoad(t)
	was := leader(t)
	if err := was.Kill(); err != nil {
		t.Fatal(err)
	}
	l.Await(5 * clients)
	if is := leader(t); is == was {
		t.Errorf("%s is dead and still holds the journal", was.Name())
	}
	_, failures := l.Stop()
	startAgain(t, was)
	if len(failures) > clients {
		t.Errorf("%d creates failed, want one per client at most", len(failures))
	}
	for _, err := range failures {
		if !strings.Contains(err.Error(), `failed calling webhook "ipallocation.butler.butlerlabs.dev"`) {
			t.Errorf("a create failed otherwise than on the wire: %v", err)
		}
	}
}

func TestFailover_FrozenLeader(t *testing.T) {
	l := startLoad(t)
	was := leader(t)
	if err := was.Freeze(); err != nil {
		t.Fatal(err)
	}
	l.Await(5 * clients)
	is := leader(t)
	if is == was {
		t.Errorf("%s is frozen and still holds the journal", was.Name())
	}
	if err := was.Thaw(); err != nil {
		t.Fatal(err)
	}
	l.Await(5 * clients)
	if owned := leader(t); owned != is {
		t.Errorf("%s is the leader after the former leader resumed, want %s", owned.Name(), is.Name())
	}
	_, failures := l.Stop() // sees to it that nothing was given twice
	t.Logf("failures: %v", failures)
	if owned := counted(t, was, "butler_ipam_journal_leader", ""); owned != 0 {
		t.Errorf("%s says that it holds the journal", was.Name())
	}
}
