package butler

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// grantLife is how long a grant stays open whose object is not seen: the least that the
// manager takes.
const grantLife = 45 * time.Second

// One control plane with one manager serves the whole package.
var (
	cluster *sandbox.Sandbox
	admin   client.WithWatch
	grants  journal.Store
)

func TestMain(m *testing.M) {
	o := sandbox.Options{Replicas: 1, ManagerArgs: []string{"--grant-expiry=" + grantLife.String(), "--log-level=debug"}}
	suite.Main(m, o, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		if admin, err = suite.NewClient(s); err != nil {
			return err
		}
		grants, err = journal.NewLeaseStore(s.Config(), sandbox.ManagerNamespace, time.Second)
		return err
	})
}

// namespace makes one for a test that runs beside the others.
func namespace(t *testing.T) string {
	t.Helper()
	t.Parallel()
	return suite.CreateNamespace(t, admin)
}

// pool is a NetworkPool named "pool".
func pool(namespace, cidr string, ranges ...string) *v1alpha1.NetworkPool {
	p := &v1alpha1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: namespace},
		Spec:       v1alpha1.NetworkPoolSpec{CIDR: cidr},
	}
	for _, r := range ranges {
		first, last, _ := strings.Cut(r, "-")
		if p.Spec.TenantAllocation == nil {
			p.Spec.TenantAllocation = &v1alpha1.TenantAllocation{}
		}
		p.Spec.TenantAllocation.Ranges = append(p.Spec.TenantAllocation.Ranges, v1alpha1.IPRange{Start: first, End: last})
	}
	return p
}

// claim is an IPAllocation of the pool named "pool". With a name that ends in a dash the
// API server completes it.
func claim(namespace, name string, count int32) *v1alpha1.IPAllocation {
	a := &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: "pool"},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "web", Namespace: "team-a"},
			Type:             v1alpha1.TypeNodes,
		},
	}
	if count > 0 {
		a.Spec.Count = &count
	}
	if strings.HasSuffix(name, "-") {
		a.Name, a.GenerateName = "", name
	}
	return a
}

// pinned is an IPAllocation that asks for one range, "first-last".
func pinned(namespace, name, addresses string) *v1alpha1.IPAllocation {
	a := claim(namespace, name, 0)
	first, last, _ := strings.Cut(addresses, "-")
	a.Spec.PinnedRange = &v1alpha1.PinnedIPRange{StartAddress: first, EndAddress: last}
	return a
}

// addressesOf is the range that an IPAllocation holds, "first-last", or "" for none.
func addressesOf(a *v1alpha1.IPAllocation) string {
	if a.Spec.PinnedRange == nil {
		return ""
	}
	return a.Spec.PinnedRange.StartAddress + "-" + a.Spec.PinnedRange.EndAddress
}

// canGive waits until one claim could have count addresses of a pool in one piece. Nobody
// then holds them, no open grant either.
func canGive(t *testing.T, within time.Duration, namespace string, count int32) {
	t.Helper()
	suite.Eventually(t, within, func(ctx context.Context) error {
		return admin.Create(ctx, claim(namespace, "probe-", count), client.DryRunAll)
	})
}

// openGrants is the journal's lines for claims of a namespace.
func openGrants(t *testing.T, namespace string) []journal.Entry {
	t.Helper()
	return slices.DeleteFunc(journalEntries(t), func(l journal.Entry) bool { return l.Namespace != namespace })
}

// journalEntries lists the entries of the journal, those of standby grants too.
func journalEntries(t *testing.T) []journal.Entry {
	t.Helper()
	v, err := grants.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v.Entries
}

// byMany calls do for 0 to n-1 from a number of goroutines and returns the errors, by
// number.
func byMany(clients, n int, do func(i int) error) []error {
	errs := make([]error, n)
	next := make(chan int)
	var workers sync.WaitGroup
	for range clients {
		workers.Go(func() {
			for i := range next {
				errs[i] = do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return errs
}
