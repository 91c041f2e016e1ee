package reconcilers

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// storedAs is the same name under the UID and version given.
func storedAs(t *testing.T, uid types.UID, version int, span string) *v1alpha1.IPAllocation {
	a := allocation("a")
	a.UID, a.ResourceVersion = uid, fmt.Sprint(version)
	a.Spec.PinnedRange = butler.PinnedRange(mustRange(t, span))
	return a
}

func TestFeedTellsTheLedgerOfEveryEndOfAnObject(t *testing.T) {
	first, second := storedAs(t, "first", 10, "10.0.0.0/29"), storedAs(t, "second", 20, "10.0.0.0/29")
	first.Status.Phase = v1alpha1.PhaseAllocated // before its pool is seen
	for name, end := range map[string]func(h toolscache.ResourceEventHandler){
		"deleted":                            func(h toolscache.ResourceEventHandler) { h.OnDelete(first) },
		"found missing after a break":        func(h toolscache.ResourceEventHandler) { h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: first}) },
		"created anew while the watch broke": func(h toolscache.ResourceEventHandler) { h.OnUpdate(first, second) },
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New(ledger.Config{ClaimKinds: []string{butler.KindIPAllocation}})
			f := &Feed{ledger: l}
			claim := func(o client.Object) ledger.Claim { return butler.ClaimOf(o.(*v1alpha1.IPAllocation)) }
			h := f.handler(&kind{
				observe: func(o client.Object) { l.Observe(claim(o)) },
				forget:  func(o client.Object, v uint64) { l.Forget(butler.KindIPAllocation, string(o.GetUID()), v) },
			})
			h.OnAdd(first, true)
			if s := l.Standing("first"); !s.Answered {
				t.Fatalf("after the first event: %+v", s)
			}
			end(h)
			if s := l.Standing("first"); s.Known {
				t.Errorf("the object that is gone stands as %+v", s)
			}
		})
	}
}
