package feed

import (
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// storedAs returns allocation a with this UID, version and range.
func storedAs(t *testing.T, uid types.UID, version int, span string) *v1alpha1.IPAllocation {
	a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "a"}}
	a.UID, a.ResourceVersion = uid, strconv.Itoa(version)
	r, err := allocator.ParseRange(span)
	if err != nil {
		t.Fatal(err)
	}
	a.Spec.PinnedRange = butler.FormatPinnedRange(r)
	return a
}

func TestFeed_ReportsEveryDeletion(t *testing.T) {
	first, second := storedAs(t, "first", 10, "10.0.0.0/29"), storedAs(t, "second", 20, "10.0.0.0/29")
	first.Status.Phase = v1alpha1.PhaseAllocated // before its pool is seen
	for name, end := range map[string]func(h toolscache.ResourceEventHandler){
		"deleted":                     func(h toolscache.ResourceEventHandler) { h.OnDelete(first) },
		"found missing after a break": func(h toolscache.ResourceEventHandler) { h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: first}) },
		"created_again_while_the_watch_was_broken": func(h toolscache.ResourceEventHandler) { h.OnUpdate(first, second) },
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New(ledger.Config{ClaimResources: []string{butler.ResourceIPAllocation}})
			f := &Feed{ledger: l}
			claim := func(o client.Object) ledger.Claim { return butler.ConvertClaim(o.(*v1alpha1.IPAllocation)) }
			h := f.eventHandler(&resource{
				observe: func(o client.Object) { l.ObserveClaim(claim(o)) },
				remove:  func(o client.Object, v uint64) { l.RemoveClaim(claim(o), v) },
			})
			h.OnAdd(first, true)
			if s := l.OwnershipOf("first"); !s.Allocated {
				t.Fatalf("after the first event: %+v", s)
			}
			end(h)
			if s := l.OwnershipOf("first"); s.Observed {
				t.Errorf("the ledger still has the deleted object: %+v", s)
			}
		})
	}
}

// A process lists all stored objects when it starts: their records, if it kept them,
// would cost more than the objects.
func TestFeed_RecordsTheEventsAfterTheFirstList(t *testing.T) {
	var recorded []string
	h := (&Feed{}).eventHandler(&resource{
		observe: func(client.Object) {}, remove: func(client.Object, uint64) {},
		record: func(before, after client.Object) {
			text := ""
			for _, o := range []client.Object{before, after} {
				if o == nil {
					text += "-"
				} else {
					text += string(o.GetUID())
				}
			}
			recorded = append(recorded, text)
		},
	})
	a, b := storedAs(t, "a", 10, "10.0.0.0/29"), storedAs(t, "b", 20, "10.0.0.8/29")
	h.OnAdd(a, true)
	h.OnAdd(b, false)
	h.OnUpdate(a, a)
	h.OnUpdate(a, b)
	h.OnDelete(b)
	if want := []string{"-b", "aa", "a-", "-b", "b-"}; !slices.Equal(recorded, want) {
		t.Errorf("recorded %q, want %q", recorded, want)
	}
}
