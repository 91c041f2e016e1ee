package gitops

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const outside = "pool %s/vlan40: 10.41.7.248-10.41.7.250 is outside the pool: it must lie inside one of 10.40.0.0-10.40.7.255"

// An engine that asks before it writes leaves everything as it was.
func TestFlux_InvalidRange(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	e := newFlux(t, namespace)
	must(t, e.sync(t.Context(), repository(t, namespace, "pool", "pinned")))
	settled(t, namespace, 1)
	before := mustVersions(t, namespace)
	for range 2 {
		err := e.sync(t.Context(), repository(t, namespace, "pool", "pinned", "allocations", "outside"))
		if want := fmt.Sprintf(outside, namespace); err == nil || !strings.Contains(err.Error(), "IPAllocation/"+namespace+"/typo dry-run failed (Invalid)") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a dry run that fails with: %s", err, want)
		}
		if err := different(before, mustVersions(t, namespace)); err != nil {
			t.Errorf("something was written: %v", err)
		}
	}
}

// Argo CD asks nobody before it writes. It tells the reason of the one object, and
// applies the others.
func TestArgo_InvalidRange(t *testing.T) {
	for name, options := range map[string]argoOptions{"client-side": {}, "server-side": {serverSideApply: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			e := newArgo(options)(t, namespace)
			must(t, e.sync(t.Context(), repository(t, namespace, "pool")))
			settled(t, namespace, 0)
			err := e.sync(t.Context(), repository(t, namespace, "pool", "allocations", "outside"))
			if want := fmt.Sprintf(outside, namespace); err == nil || !strings.Contains(err.Error(), "typo: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "backend") {
				t.Errorf("got %v, want one refusal: %s", err, want)
			}
			settled(t, namespace, 2)
		})
	}
}

// smaller is the repository with one allocation asking for fewer addresses than it has.
func smaller(t *testing.T, namespace string) []*unstructured.Unstructured {
	t.Helper()
	objects := repository(t, namespace, everything...)
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == "backend-lb" })
	must(t, unstructured.SetNestedField(objects[i].Object, int64(4), "spec", "count"))
	return objects
}

func TestImmutableField_IsReported(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, namespace string, e gitops) {
		must(t, e.sync(t.Context(), repository(t, namespace, everything...)))
		ranges := settled(t, namespace, 3)
		if err := e.sync(t.Context(), smaller(t, namespace)); err == nil || !strings.Contains(err.Error(), "spec.count: Forbidden: cannot be changed while addresses are owned: create another IPAllocation") {
			t.Errorf("fewer addresses: %v", err)
		}
		if err := different(ranges, settled(t, namespace, 3)); err != nil {
			t.Errorf("ranges have moved: %v", err)
		}
	})
}

func TestFlux_ForceRecreates(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	e := newFlux(t, namespace)
	e.options.Force = true
	must(t, e.sync(t.Context(), repository(t, namespace, everything...)))
	before := settled(t, namespace, 3)
	must(t, e.sync(t.Context(), smaller(t, namespace)))
	after := settled(t, namespace, 3)
	lb := after["backend-lb"]
	if first, last := netip.MustParseAddr(lb.StartAddress).As4(), netip.MustParseAddr(lb.EndAddress).As4(); last[3]-first[3] != 3 {
		t.Errorf("it has %v, want 4 addresses", lb)
	}
	delete(before, "backend-lb")
	delete(after, "backend-lb")
	if err := different(before, after); err != nil {
		t.Errorf("ranges of others have moved: %v", err)
	}
}

// In a first sync the pool may come after the allocation, which nobody can judge then: it
// is stored, and says what is wrong when the pool is there. Who has the pool come first
// is told at once.
func TestInvalidRange_TogetherWithItsPool(t *testing.T) {
	t.Parallel()
	t.Run("Flux", func(t *testing.T) {
		t.Parallel()
		namespace := newNamespace(t)
		e := newFlux(t, namespace)
		must(t, e.sync(t.Context(), repository(t, namespace, "pool", "outside")))
		if err := e.healthy(t.Context(), soon); err == nil || !strings.Contains(err.Error(), "failed early due to stalled resources: [IPAllocation/"+namespace+"/typo status: 'Failed'") {
			t.Errorf("got %v, want the wait to fail early with what has stalled", err)
		}
		a := &v1alpha1.IPAllocation{}
		must(t, stored.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "typo"}, a))
		c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionStalled)
		if want := fmt.Sprintf(outside, namespace); c == nil || !strings.Contains(c.Message, want) {
			t.Errorf("got %+v, want %s", a.Status.Conditions, want)
		}
	})
	t.Run("Flux, pools first", func(t *testing.T) {
		t.Parallel()
		namespace := newNamespace(t)
		e := newFlux(t, namespace)
		e.poolsFirst(t)
		err := e.sync(t.Context(), repository(t, namespace, "pool", "allocations", "outside"))
		if want := fmt.Sprintf(outside, namespace); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		settled(t, namespace, 0) // not even those that are right
	})
	for name, options := range map[string]argoOptions{"client-side": {}, "server-side": {serverSideApply: true}} {
		t.Run("Argo CD "+name+", pools in an earlier wave", func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			e := newArgo(options)(t, namespace)
			err := e.sync(t.Context(), earlierWave(repository(t, namespace, "pool", "allocations", "outside")))
			if want := fmt.Sprintf(outside, namespace); err == nil || !strings.Contains(err.Error(), "typo: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			settled(t, namespace, 2)
			must(t, e.sync(t.Context(), nil)) // the allocations before their pool, in one go
			must(t, nothingLeft(t, namespace))
		})
	}
}

// earlierWave has Argo CD apply the pools before everything else, and prune them after
// it.
func earlierWave(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, o := range objects {
		if o.GetKind() == "NetworkPool" {
			o.SetAnnotations(map[string]string{"argocd.argoproj.io/sync-wave": "-1"})
		}
	}
	return objects
}
