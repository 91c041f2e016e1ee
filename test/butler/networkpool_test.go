package butler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// numbers of a pool: total, allocated, available.
func numbers(p *v1alpha1.NetworkPool) string {
	return fmt.Sprintf("%d/%d/%d", p.Status.TotalIPs, p.Status.AllocatedIPs, p.Status.AvailableIPs)
}

// shows waits until a pool has these numbers.
func shows(t *testing.T, c client.Reader, p *v1alpha1.NetworkPool, want string) {
	t.Helper()
	suite.AwaitObject(t, c, p, func(p *v1alpha1.NetworkPool) string {
		if got := numbers(p); got != want {
			return fmt.Sprintf("numbers %s, want %s", got, want)
		}
		return ""
	})
}

// metrics are those of the manager.
func metrics(ctx context.Context) (string, error) {
	return suite.GetURL(ctx, "http://"+cluster.Managers()[0].MetricsAddress+"/metrics")
}

func TestNetworkPool_Status(t *testing.T) {
	ns := alone(t)
	p := halfPool(ns)
	suite.Create(t, admin, p)
	shows(t, admin, p, "128/0/128")
	s := p.Status
	if !slices.Equal(p.Finalizers, []string{v1alpha1.FinalizerNetworkPool}) || s.PoolSizeIPs != 256 || s.UnmanagedScopeIPs != 127 || s.LargestFreeBlock != 128 ||
		s.FragmentationPercent == nil || *s.FragmentationPercent != 0 || s.ObservedGeneration != p.Generation {
		t.Errorf("finalizers %q, status %+v", p.Finalizers, s)
	}
	if diff := cmp.Diff([]v1alpha1.UnmanagedRange{{Start: "10.40.0.1", End: "10.40.0.127"}}, s.UnmanagedRanges); diff != "" {
		t.Errorf("unmanaged ranges (-want +got):\n%s", diff)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != v1alpha1.ReasonReady {
		t.Errorf("Ready is %+v", c)
	}

	owner := map[string]string{}
	for i := range 3 {
		a := claim(ns, fmt.Sprintf("of-three-%d", i), 8)
		suite.Create(t, admin, a)
		readyWith(t, admin, a, "")
		if a.Status.Phase != v1alpha1.PhaseAllocated || len(a.Status.Addresses) != 8 || a.Status.AllocatedAt == nil || a.Status.AllocatedBy != "networkpool-controller" {
			t.Errorf("status %+v", a.Status)
		}
		for _, address := range a.Status.Addresses {
			if other := owner[address]; other != "" {
				t.Errorf("%s and %s both have %s", other, a.Name, address)
			}
			owner[address] = a.Name
		}
		// Addresses count from their grant on, the allocation from when it is seen.
		suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
			if want := fmt.Sprintf("128/%d/%d", 8*(i+1), 128-8*(i+1)); int(p.Status.AllocationCount) != i+1 || numbers(p) != want {
				return fmt.Sprintf("%d allocations, numbers %s, want %s", p.Status.AllocationCount, numbers(p), want)
			}
			return ""
		})
	}
	if err := admin.DeleteAllOf(t.Context(), &v1alpha1.IPAllocation{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	shows(t, admin, p, "128/0/128")
	if n := p.Status.AllocationCount; n != 0 {
		t.Errorf("%d allocations", n)
	}
}

// In a namespace that is being deleted no webhook denies the deletion of a pool, and its
// finalizer keeps it.
func TestNetworkPool_StaysForItsLastOwner(t *testing.T) {
	ns := alone(t)
	p, a, blocker := halfPool(ns), claim(ns, "owner", 8), claim(ns, "blocker", 1)
	blocker.Finalizers = []string{"example.com/blocker"}
	suite.Create(t, admin, p, a)
	shows(t, admin, p, "128/8/120")
	suite.RequireDenied(t, admin.Delete(t.Context(), p), 403)
	suite.Create(t, admin, blocker)
	// Namespaces are emptied by a controller that is not here.
	if err := errors.Join(
		admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}), admin.Delete(t.Context(), p),
		admin.DeleteAllOf(t.Context(), &v1alpha1.IPAllocation{}, client.InNamespace(ns)),
	); err != nil {
		t.Fatal(err)
	}
	suite.AwaitGone(t, admin, a)
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != v1alpha1.ReasonDeleting || !slices.Equal(p.Finalizers, []string{v1alpha1.FinalizerNetworkPool}) || p.Status.AllocationCount != 1 {
			return fmt.Sprintf("Ready is %+v, finalizers %q, %d allocations", c, p.Finalizers, p.Status.AllocationCount)
		}
		return ""
	})
	keptBy(t, admin, blocker, "example.com/blocker")
	if blocker.Status.Phase != v1alpha1.PhaseReleased {
		t.Errorf("phase %s", blocker.Status.Phase)
	}
	suite.Change(t, admin, blocker, func(a *v1alpha1.IPAllocation) { a.Finalizers = nil })
	suite.AwaitGone(t, admin, p)
}

// keptBy waits until an object has this finalizer and no other.
func keptBy[T client.Object](t *testing.T, c client.Reader, o T, finalizer string) {
	t.Helper()
	suite.AwaitObject(t, c, o, func(o T) string {
		if f := o.GetFinalizers(); !slices.Equal(f, []string{finalizer}) {
			return fmt.Sprintf("finalizers %q", f)
		}
		return ""
	})
}

func TestNetworkPool_NumbersBeyondInt64(t *testing.T) {
	ns := alone(t)
	p, a := domainPool(ns, "2001:db8::/48"), pinned(ns, "a", "2001:db8:0:1::-2001:db8:0:1:ffff:ffff:ffff:ffff")
	suite.Create(t, admin, p, a)
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
		if p.Status.AllocatedIPs != math.MaxInt64 {
			return numbers(p)
		}
		return ""
	})
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionCapacityWarning)
	if c.Status != metav1.ConditionFalse || c.Message != "0% of the addresses are allocated (about 2^64 of about 2^80)" {
		t.Errorf("condition %+v", c)
	}
	if text := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.HasPrefix(text, "about 2^80 of about 2^80 addresses available") {
		t.Errorf("Ready says %s", text)
	}
	labels := fmt.Sprintf(`{namespace=%q,pool="pool",resource="networkpools.butler.butlerlabs.dev"} `, ns)
	suite.AwaitText(t, metrics, "butler_network_pool_allocated_ips"+labels+"1.8446744073709552e+19\n") // 2^64 of 2^80
	suite.AwaitText(t, metrics, "butler_network_pool_total_ips"+labels+"1.2089258196146292e+24\n")
}

func TestNetworkPool_CapacityTiers(t *testing.T) {
	ns := alone(t)
	p := halfPool(ns)
	suite.Create(t, admin, p)
	tiers := func(want string) {
		t.Helper()
		suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
			text := ""
			for _, name := range []string{v1alpha1.ConditionCapacityWarning, v1alpha1.ConditionCapacityCritical, v1alpha1.ConditionCapacityExhausted} {
				switch c := meta.FindStatusCondition(p.Status.Conditions, name); {
				case c == nil:
					return name + " is missing"
				case c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonUtilizationAboveThreshold:
					text += "+"
				case c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonUtilizationBelowThreshold:
					text += "-"
				}
			}
			if text != want {
				return fmt.Sprintf("tiers %s, want %s", text, want)
			}
			return ""
		})
	}
	tiers("---")
	for _, step := range []struct {
		count int32
		want  string
	}{{89, "---"}, {1, "+--"}, {19, "++-"}, {13, "+++"}} { // of 128: 89, 90, 109, 122
		suite.Create(t, admin, claim(ns, fmt.Sprintf("of-%d", step.count), step.count))
		tiers(step.want)
	}
	suite.AwaitEvent(t, admin, p, "PoolCapacityWarning", "")
	suite.AwaitEvent(t, admin, p, "PoolCapacityCritical", "")
	if reasons := suite.AwaitEvent(t, admin, p, "PoolCapacityExhausted", ""); len(reasons) != 3 {
		t.Errorf("events %q, want one of each tier", reasons)
	}
	if err := admin.Delete(t.Context(), claim(ns, "of-89", 89)); err != nil {
		t.Fatal(err)
	}
	tiers("---")
	suite.AwaitEvent(t, admin, p, "PoolCapacityRecovered", "")
}

func TestNetworkPool_NumbersOfOverlappingPools(t *testing.T) {
	ns := alone(t)
	p, other := halfPool(ns), domainPool(ns, "10.40.0.0/24", "10.40.0.192-10.40.0.255")
	other.Name = "other"
	suite.Create(t, admin, p, other, pinned(ns, "shared", "10.40.0.192-10.40.0.199"))
	shows(t, admin, p, "128/8/120")
	shows(t, admin, other, "64/8/56")
}

func TestNetworkPool_StatusWrites(t *testing.T) {
	ns := alone(t)
	p := halfPool(ns)
	suite.Create(t, admin, p)
	shows(t, admin, p, "128/0/128")
	w, err := admin.Watch(t.Context(), &v1alpha1.NetworkPoolList{}, client.InNamespace(ns), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: p.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	began := time.Now()
	for i := range 128 {
		suite.Create(t, admin, claim(ns, fmt.Sprintf("busy-%03d", i), 1))
	}
	writes := 1
	for numbers(next(t, w).Object.(*v1alpha1.NetworkPool)) != "128/128/0" {
		writes++
	}
	if most := 2 + int(2*time.Since(began).Seconds()); writes > most {
		t.Errorf("%d writes in %s, want %d at most", writes, time.Since(began), most)
	}
	counts(t, admin, ns, 128, isReady)
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
		if p.Status.AllocationCount != 128 {
			return fmt.Sprintf("%d allocations", p.Status.AllocationCount)
		}
		return ""
	})
	quiet := p.ResourceVersion
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now := suite.Read(t, admin, p).ResourceVersion; now != quiet {
			t.Fatal("the pool is written although nothing happens")
		}
	}
}

func TestNetworkPool_MetricsEndWithThePool(t *testing.T) {
	ns := alone(t)
	p, a := halfPool(ns), claim(ns, "measured", 8)
	suite.Create(t, admin, p, a)
	suite.AwaitText(t, metrics, fmt.Sprintf(`butler_network_pool_allocated_ips{namespace=%q,pool="pool",resource="networkpools.butler.butlerlabs.dev"} 8`, ns))
	suite.Delete(t, admin, a)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Delete(ctx, p) })
	suite.AwaitGone(t, admin, p)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		text, err := metrics(ctx)
		if err == nil && strings.Contains(text, ns) {
			err = errors.New("the metrics still name the namespace")
		}
		return err
	})
}

func TestNetworkPool_FullPoolGrows(t *testing.T) {
	ns := alone(t)
	p := domainPool(ns, "10.41.0.0/29")
	suite.Create(t, admin, p, claim(ns, "all", 8))
	suite.RequireDenied(t, admin.Create(t.Context(), claim(ns, "more", 4)), 403)
	shows(t, admin, p, "8/8/0")
	suite.AwaitText(t, metrics, fmt.Sprintf(`butler_ip_allocation_processed_total{namespace=%q,pool="pool",resource="networkpools.butler.butlerlabs.dev",result="failed"} 1`, ns))
	suite.Change(t, admin, p, func(p *v1alpha1.NetworkPool) { p.Spec.CIDR = "10.41.0.0/28" })
	a := claim(ns, "more", 4)
	suite.Create(t, admin, a)
	if got := addressesOf(a); got != "10.41.0.8-10.41.0.11" {
		t.Errorf("range %s", got)
	}
	shows(t, admin, p, "16/12/4")
}
