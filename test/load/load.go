// Package load creates claims continuously while a test disturbs the managers. It
// measures the longest time without a response and counts failed creates.
package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// patience is the maximum time that Await waits.
const patience = time.Minute

// Load is a number of clients, each of which creates one allocation after the other.
type Load struct {
	t         *testing.T
	api       client.Client
	namespace string
	cancel    context.CancelFunc
	clients   sync.WaitGroup

	mu       sync.Mutex
	answers  map[string]string // name -> address in the response
	landed   []time.Time       // end of each successful create
	slowest  time.Duration     // longest create
	failures []error
}

// NewPool creates a namespace with a NetworkPool of this CIDR and returns the name of the
// namespace.
func NewPool(t *testing.T, api client.Client, cidr string) (namespace string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "load-"}}
	if err := api.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: ns.Name}, Spec: v1alpha1.NetworkPoolSpec{CIDR: cidr}}
	if err := api.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// Claim returns an IPAllocation that requests one address of the pool of NewPool.
func Claim(namespace, name string) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: "pool"},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "web", Namespace: "team-a"},
			Type:             v1alpha1.TypeNodes,
			Count:            new(int32(1)),
		},
	}
}

// Start makes a namespace with a pool of these addresses, and clients that create
// allocations there until Stop.
func Start(t *testing.T, api client.Client, cidr string, clients int) *Load {
	t.Helper()
	namespace := NewPool(t, api, cidr)
	ctx, cancel := context.WithCancel(t.Context())
	l := &Load{t: t, api: api, namespace: namespace, cancel: cancel, answers: map[string]string{}}
	for c := range clients {
		l.clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				l.create(fmt.Sprintf("c%d-%d", c, i))
			}
		})
	}
	t.Cleanup(cancel)
	l.Await(2 * clients)
	return l
}

func (l *Load) create(name string) {
	a := Claim(l.namespace, name)
	started := time.Now()
	err := l.api.Create(context.Background(), a)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest = max(l.slowest, time.Since(started))
	switch {
	case err != nil:
		l.failures = append(l.failures, fmt.Errorf("%s: %w", name, err))
	case a.Spec.PinnedRange == nil:
		l.failures = append(l.failures, fmt.Errorf("%s: the answer holds no address", name))
	default:
		l.answers[name] = a.Spec.PinnedRange.StartAddress
		l.landed = append(l.landed, time.Now())
	}
}

// Await waits for n more successful creates.
func (l *Load) Await(more int) {
	l.t.Helper()
	l.mu.Lock()
	want := len(l.answers) + more
	l.mu.Unlock()
	deadline := time.Now().Add(patience)
	for {
		l.mu.Lock()
		got := len(l.answers)
		l.mu.Unlock()
		if got >= want {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%d answers, want %d; failures: %v", got, want, l.failures)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Stop stops the clients. It fails the test unless every returned address is stored and
// no address was allocated twice. It returns the longest time between two successful
// responses, and the errors of the failed creates.
func (l *Load) Stop() (gap time.Duration, failures []error) {
	l.t.Helper()
	l.cancel()
	l.clients.Wait()
	var stored v1alpha1.IPAllocationList
	if err := l.api.List(l.t.Context(), &stored, client.InNamespace(l.namespace)); err != nil {
		l.t.Fatal(err)
	}
	owner := map[string]string{}
	for _, a := range stored.Items {
		answer, answered := l.answers[a.Name]
		switch {
		case a.Spec.PinnedRange == nil:
			l.t.Errorf("%s is stored without an address", a.Name)
			continue
		case answered && a.Spec.PinnedRange.StartAddress != answer:
			l.t.Errorf("%s has %s, the answer said %s", a.Name, a.Spec.PinnedRange.StartAddress, answer)
		}
		if other, taken := owner[a.Spec.PinnedRange.StartAddress]; taken {
			l.t.Errorf("%s and %s both have %s", other, a.Name, a.Spec.PinnedRange.StartAddress)
		}
		owner[a.Spec.PinnedRange.StartAddress] = a.Name
		delete(l.answers, a.Name)
	}
	for name := range l.answers {
		l.t.Errorf("%s was answered and is not stored", name)
	}
	slices.SortFunc(l.landed, time.Time.Compare)
	for i := 1; i < len(l.landed); i++ {
		gap = max(gap, l.landed[i].Sub(l.landed[i-1]))
	}
	l.t.Logf("%d creates answered, %d failed, longest gap %s, slowest create %s",
		len(l.landed), len(l.failures), gap.Round(time.Millisecond), l.slowest.Round(time.Millisecond))
	return gap, l.failures
}
