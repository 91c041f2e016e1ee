package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// history sees the versions of all allocations in the order in which they are stored, and
// finds fault with two that are Ready on one address at a time. What comes and goes while
// the API server starts again it does not see.
type history struct {
	mu    sync.Mutex
	ready map[string]string // name -> address of those that are Ready
	clash []string
}

func (c *cluster) startHistory() *history {
	h := &history{}
	go func() {
		for ctx := c.Context(); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			var all v1alpha1.IPAllocationList
			if c.List(ctx, &all) != nil {
				continue
			}
			h.replace(all.Items)
			changes, err := c.Watch(ctx, &all, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: all.ResourceVersion}})
			if err != nil {
				continue
			}
			for e := range changes.ResultChan() {
				h.saw(e)
			}
		}
	}()
	return h
}

func (h *history) replace(all []v1alpha1.IPAllocation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = map[string]string{}
	for i := range all {
		h.stored(&all[i])
	}
}

func (h *history) saw(e watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, is := e.Object.(*v1alpha1.IPAllocation)
	if !is {
		return // the watch ends, and begins anew
	}
	if delete(h.ready, a.Name); e.Type != watch.Deleted {
		h.stored(a)
	}
}

func (h *history) stored(a *v1alpha1.IPAllocation) {
	if !ready(a) {
		return
	}
	for name, address := range h.ready {
		if address == addressOf(a) {
			h.clash = append(h.clash, fmt.Sprintf("%s and %s are both Ready on %s", name, a.Name, address))
		}
	}
	h.ready[a.Name] = addressOf(a)
}

func (h *history) check(c *cluster) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, clash := range h.clash {
		c.Error(clash)
	}
}

func addressOf(a *v1alpha1.IPAllocation) string {
	if a.Spec.PinnedRange == nil {
		return ""
	}
	return a.Spec.PinnedRange.StartAddress
}

func ready(a *v1alpha1.IPAllocation) bool {
	return meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady)
}

func flagged(a *v1alpha1.IPAllocation) bool {
	c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Reason == v1alpha1.ReasonAddressConflict
}

// stored lists the allocations.
func (c *cluster) stored(ctx context.Context) ([]v1alpha1.IPAllocation, error) {
	var all v1alpha1.IPAllocationList
	err := c.List(ctx, &all, client.InNamespace(sandbox.Namespace))
	return all.Items, err
}

// settled waits until each owned address has exactly one Ready allocation, all other
// allocations with that address are flagged, the pool counts exactly these addresses and
// allocations, and no grant is open.
func (c *cluster) settled() {
	c.Helper()
	suite.Eventually(c.T, patience, func(ctx context.Context) error {
		all, err := c.stored(ctx)
		if err != nil {
			return err
		}
		owners := map[string]int{} // address -> number of Ready allocations
		for _, a := range all {
			address := addressOf(&a)
			n := owners[address]
			switch {
			case address == "":
				return fmt.Errorf("%s has no address", a.Name)
			case ready(&a):
				n++
			case !flagged(&a):
				return fmt.Errorf("%s is neither Ready nor flagged", a.Name)
			}
			owners[address] = n
		}
		for address, n := range owners {
			if n != 1 {
				return fmt.Errorf("%d allocations are Ready on %s, want one", n, address)
			}
		}
		return c.counted(ctx, len(owners), len(all))
	})
	c.history.check(c)
}

// counted compares what the pool and the journal say with what is stored.
func (c *cluster) counted(ctx context.Context, addresses, allocations int) error {
	var pool v1alpha1.NetworkPool
	if err := c.Get(ctx, client.ObjectKey{Namespace: sandbox.Namespace, Name: poolName}, &pool); err != nil {
		return err
	}
	if is := pool.Status; is.AllocatedIPs != int64(addresses) || is.AllocationCount != int64(allocations) {
		return fmt.Errorf("the pool counts %d addresses of %d allocations, want %d of %d", is.AllocatedIPs, is.AllocationCount, addresses, allocations)
	}
	return c.noGrants(ctx)
}

func (c *cluster) noGrants(ctx context.Context) error {
	v, err := c.journal.Read(ctx)
	if err == nil && len(v.Entries) > 0 {
		err = fmt.Errorf("%d grants are open", len(v.Entries))
	}
	return err
}

// late sorts the allocations of these names that are stored after all.
func (c *cluster) late(names []string) (adopted, conflicting []*v1alpha1.IPAllocation) {
	c.Helper()
	all, err := c.stored(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	for i := range all {
		switch a := &all[i]; {
		case !slices.Contains(names, a.Name):
		case flagged(a):
			conflicting = append(conflicting, a)
		default:
			adopted = append(adopted, a)
		}
	}
	return adopted, conflicting
}

// remove deletes allocations and waits until they are gone.
func (c *cluster) remove(allocations []*v1alpha1.IPAllocation) {
	c.Helper()
	for _, a := range allocations {
		if err := c.Delete(c.Context(), a); err != nil {
			c.Fatal(err)
		}
	}
	suite.Eventually(c.T, patience, func(ctx context.Context) error {
		all, err := c.stored(ctx)
		if err != nil {
			return err
		}
		for _, a := range allocations {
			if slices.ContainsFunc(all, func(o v1alpha1.IPAllocation) bool { return o.UID == a.UID }) {
				return fmt.Errorf("%s is not gone", a.Name)
			}
		}
		return nil
	})
}
