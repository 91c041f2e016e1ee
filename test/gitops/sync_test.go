package gitops

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

var everything = []string{"pool", "allocations", "pinned"}

// inSync fails a test in whose namespace an engine sees a difference, or writes when it
// applies the same again.
func inSync(t *testing.T, namespace string, e gitops, objects func() []*unstructured.Unstructured) {
	t.Helper()
	before := mustVersions(t, namespace)
	names, err := e.drifted(t.Context(), objects())
	must(t, err)
	if len(names) > 0 {
		t.Errorf("differences are shown of %v", names)
	}
	must(t, e.sync(t.Context(), objects()))
	if err := different(before, mustVersions(t, namespace)); err != nil {
		t.Errorf("a sync of what is in sync has written: %v", err)
	}
}

func TestSync_EveryOrderConverges(t *testing.T) {
	orders := [][]string{
		{"pool allocations pinned"},
		{"pool", "allocations", "pinned"}, {"pool", "pinned", "allocations"},
		{"allocations", "pool", "pinned"}, {"allocations", "pinned", "pool"},
		{"pinned", "pool", "allocations"}, {"pinned", "allocations", "pool"},
	}
	for _, order := range orders {
		t.Run(strings.Join(order, ", then "), func(t *testing.T) {
			onEveryEngine(t, func(t *testing.T, namespace string, e gitops) {
				var files []string
				for _, next := range order {
					files = append(files, strings.Fields(next)...)
					must(t, e.sync(t.Context(), repository(t, namespace, files...)))
				}
				ranges := settled(t, namespace, 3)
				disjoint(t, ranges)
				if got, want := ranges["gateway"], (v1alpha1.PinnedIPRange{StartAddress: "10.40.7.240", EndAddress: "10.40.7.247"}); got != want {
					t.Errorf("the pinned one has %v, want %v", got, want)
				}
				inSync(t, namespace, e, func() []*unstructured.Unstructured { return repository(t, namespace, everything...) })
				if err := different(ranges, settled(t, namespace, 3)); err != nil {
					t.Errorf("ranges have moved: %v", err)
				}
			})
		})
	}
}

func TestSync_TwoHundredAllocations(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, namespace string, e gitops) {
		objects := func() []*unstructured.Unstructured {
			pool, pattern := repository(t, namespace, "pool"), repository(t, namespace, "allocations")[0]
			for i := range 200 {
				o := pattern.DeepCopy()
				o.SetName(fmt.Sprintf("cluster-%03d", i))
				pool = append(pool, o)
			}
			return pool
		}
		must(t, e.sync(t.Context(), objects()))
		disjoint(t, settled(t, namespace, 200))
		inSync(t, namespace, e, objects)
	})
}

func disjoint(t *testing.T, ranges map[string]v1alpha1.PinnedIPRange) {
	t.Helper()
	owner := map[netip.Addr]string{}
	for _, name := range slices.Sorted(maps.Keys(ranges)) {
		r := ranges[name]
		first, last := netip.MustParseAddr(r.StartAddress), netip.MustParseAddr(r.EndAddress)
		for a := first; a.Compare(last) <= 0; a = a.Next() {
			if other := owner[a]; other != "" {
				t.Fatalf("%s and %s both have %s", other, name, a)
			}
			owner[a] = name
		}
	}
}

func TestSync_DriftIsReverted(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, namespace string, e gitops) {
		objects := func() []*unstructured.Unstructured { return repository(t, namespace, everything...) }
		must(t, e.sync(t.Context(), objects()))
		ranges := settled(t, namespace, 3)

		relabel := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"somebody-else"}}}`))
		edited := &v1alpha1.IPAllocation{}
		edited.Namespace, edited.Name = namespace, "backend-lb"
		must(t, stored.Patch(t.Context(), edited, relabel))
		deleted := &v1alpha1.IPAllocation{}
		deleted.Namespace, deleted.Name = namespace, "gateway"
		must(t, stored.Delete(t.Context(), deleted))
		settled(t, namespace, 2)

		names, err := e.drifted(t.Context(), objects())
		must(t, err)
		if err := different([]string{"backend-lb", "gateway"}, names); err != nil {
			t.Errorf("shown as different: %v", err)
		}
		must(t, e.sync(t.Context(), objects()))
		if err := different(ranges, settled(t, namespace, 3)); err != nil {
			t.Errorf("ranges have moved: %v", err)
		}
		must(t, stored.Get(t.Context(), client.ObjectKeyFromObject(edited), edited))
		if got := edited.Labels["team"]; got != "backend" {
			t.Errorf("team is %q, want the label that the repository has", got)
		}
		inSync(t, namespace, e, objects)
	})
}

// What is pruned frees its addresses: the next one that asks for as many gets just these,
// as there are no others.
func TestPrune_FreesAddresses(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, namespace string, e gitops) {
		full := func(names ...string) []*unstructured.Unstructured {
			objects, pattern := repository(t, namespace, "pool"), repository(t, namespace, "allocations")[1]
			must(t, unstructured.SetNestedField(objects[0].Object, "10.40.0.0/27", "spec", "cidr")) // of which 16 addresses are reserved
			for _, name := range names {
				o := pattern.DeepCopy()
				o.SetName(name)
				objects = append(objects, o)
			}
			return objects
		}
		must(t, e.sync(t.Context(), full("kept", "pruned")))
		ranges := settled(t, namespace, 2)
		if err := e.sync(t.Context(), full("kept", "pruned", "next")); err == nil || !strings.Contains(err.Error(), "8 addresses requested, 0 free") {
			t.Errorf("a third one in a full pool: %v", err)
		}
		must(t, e.sync(t.Context(), full("kept")))
		if err := different(map[string]v1alpha1.PinnedIPRange{"kept": ranges["kept"]}, settled(t, namespace, 1)); err != nil {
			t.Error(err)
		}
		must(t, e.sync(t.Context(), full("kept", "next")))
		if err := different(map[string]v1alpha1.PinnedIPRange{"kept": ranges["kept"], "next": ranges["pruned"]}, settled(t, namespace, 2)); err != nil {
			t.Error(err)
		}
		must(t, e.sync(t.Context(), nil))
		must(t, nothingLeft(t, namespace))
	})
}

// Flux deletes a pool before its allocations, Argo CD all of them at the same time.
func TestPrune_PoolWithItsAllocations(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, namespace string, e gitops) {
		objects, pattern := repository(t, namespace, "pool"), repository(t, namespace, "allocations")[0]
		for i := range 20 {
			o := pattern.DeepCopy()
			o.SetName(fmt.Sprintf("cluster-%02d", i))
			objects = append(objects, o)
		}
		must(t, e.sync(t.Context(), objects))
		settled(t, namespace, 20)
		must(t, e.sync(t.Context(), nil))
		must(t, nothingLeft(t, namespace))
	})
}

func nothingLeft(t *testing.T, namespace string) error {
	return eventually(t.Context(), func() error {
		left, err := versions(t.Context(), namespace)
		return errors.Join(err, different(map[string]string{}, left))
	})
}
