package butler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// slowPool is a pool of 256 addresses that chooses ranges as the policy is described: the
// smallest free run that is large enough, the lowest of equals.
type slowPool [256]bool

// choose returns the first address of the range for n addresses; false if no run is large
// enough.
func (p *slowPool) choose(n int) (first int, ok bool) {
	best := len(p) + 1
	for begin := 0; begin < len(p); begin++ {
		end := begin
		for end < len(p) && !p[end] {
			end++
		}
		if size := end - begin; size >= n && size < best {
			best, first, ok = size, begin, true
		}
		begin = end
	}
	return first, ok
}

func (p *slowPool) set(first, n int, owned bool) {
	for i := range n {
		p[first+i] = owned
	}
}

// Random creates and deletes get the ranges that a slow implementation of best fit
// chooses, also those whose range was in the journal before.
func TestBestFit_EqualsASlowImplementation(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, domainPool(ns, "10.81.0.0/24"))
	random := rand.New(rand.NewPCG(5, 6))
	var slow slowPool
	stored := map[*v1alpha1.IPAllocation]int{} // -> first address
	var order []*v1alpha1.IPAllocation
	denied, fromJournal := 0, 0
	size := 1
	for i := range 300 {
		if len(order) > 0 && random.IntN(3) == 0 {
			victim := random.IntN(len(order))
			a := order[victim]
			order = slices.Delete(order, victim, victim+1)
			suite.Delete(t, admin, a)
			probe := pinned(ns, "probe", addressesOf(a))
			suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Create(ctx, probe.DeepCopy(), client.DryRunAll) })
			slow.set(stored[a], int(*a.Spec.Count), false)
			continue
		}
		if random.IntN(4) == 0 { // several creates of one size in turn, so that grants are ready for them
			size = 1 + random.IntN(16)
		}
		a := claim(ns, fmt.Sprint("a-", i), int32(size))
		first, fits := slow.choose(size)
		before := journalEntries(t)
		err := admin.Create(t.Context(), a)
		if !fits {
			suite.RequireDenied(t, err, 403)
			denied++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("10.81.0.%d-10.81.0.%d", first, first+size-1); addressesOf(a) != want {
			t.Fatalf("create %d of %d addresses got %s, want %s", i, size, addressesOf(a), want)
		}
		for _, e := range before {
			if e.Token.String() == a.Annotations[v1alpha1.AnnotationGrant] {
				fromJournal++
			}
		}
		slow.set(first, size, true)
		stored[a] = first
		order = append(order, a)
	}
	t.Logf("%d creates were granted from the journal, %d denied", fromJournal, denied)
	if fromJournal < 10 || denied == 0 {
		t.Errorf("%d creates were granted from the journal, %d denied: the test shows nothing", fromJournal, denied)
	}
}

// Pools of 1 to 32 addresses fill to the last address, although creates fail after their
// admission.
func TestSmallPools_FillToTheLastAddress(t *testing.T) {
	suite.SkipShort(t)
	ns := namespace(t)
	refuse := refused(t, ns, admissionregistrationv1.Create)
	allocation := func(size, n int, fails bool) *v1alpha1.IPAllocation {
		a := claim(ns, fmt.Sprintf("a-%d-%d", size, n), 1)
		a.Spec.PoolRef.Name = fmt.Sprint("pool-", size)
		if fails {
			a.Name, a.Labels = fmt.Sprintf("fails-%d-%d", size, n), refuse
		}
		return a
	}
	for size := 1; size <= 32; size++ {
		p := pool(ns, fmt.Sprintf("10.82.%d.0/27", size), fmt.Sprintf("10.82.%d.0-10.82.%d.%d", size, size, size-1))
		p.Name = fmt.Sprint("pool-", size)
		suite.Create(t, admin, p)
	}
	suite.Eventually(t, time.Minute, func(ctx context.Context) error { // the API server compiles policies some time after they are stored
		if err := admin.Create(ctx, allocation(32, 0, true), client.DryRunAll); err == nil {
			return errors.New("the policy refuses nothing yet")
		}
		return nil
	})
	for _, err := range byMany(32, 32, func(i int) error {
		size := i + 1
		for n := range size {
			if n == size/2 {
				if err := admin.Create(t.Context(), allocation(size, n, true)); err == nil {
					return errors.New("the policy refuses nothing")
				}
			}
			for deadline := time.Now().Add(3 * grantLife); ; time.Sleep(time.Second) { // a failed create keeps its address until its grant ends
				err := admin.Create(t.Context(), allocation(size, n, false))
				if err == nil {
					break
				}
				if time.Now().After(deadline) {
					return fmt.Errorf("address %d of %d: %w", n+1, size, err)
				}
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	var all v1alpha1.IPAllocationList
	if err := admin.List(t.Context(), &all, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	addresses := map[string]bool{}
	for i := range all.Items {
		addresses[addressesOf(&all.Items[i])] = true
	}
	if want := 32 * 33 / 2; len(all.Items) != want || len(addresses) != want {
		t.Errorf("%d allocations own %d addresses, want %d", len(all.Items), len(addresses), want)
	}
	for _, size := range []int{1, 15, 16, 32} {
		suite.RequireDenied(t, admin.Create(t.Context(), allocation(size, size, false)), 403)
	}
}
