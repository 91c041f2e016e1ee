package butler

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

const earlierSince = 1_700_000_000

// earlier gives a stored allocation the status that an earlier allocator wrote: its only
// record of the range.
func earlier(t *testing.T, c client.Client, a *v1alpha1.IPAllocation, first, last string) {
	t.Helper()
	at := metav1.Unix(earlierSince, 0)
	a.Status = v1alpha1.IPAllocationStatus{
		Phase: v1alpha1.PhaseAllocated, StartAddress: first, EndAddress: last, AllocatedCount: int64(*a.Spec.Count),
		AllocatedAt: &at, AllocatedBy: "networkpool-controller", CIDR: first + "-" + last,
	}
	meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"})
	if err := c.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// What is stored while no manager runs counts when one starts. The subtests are steps on
// one control plane.
func TestAdoption(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{ManagerArgs: []string{"--shutdown-delay=0s", "--grant-expiry=" + grantLife.String()}})
	const adopted, lone, clash, readyClash, faulty = "adopted", "lone", "clash", "ready-clash", "faulty"
	for _, name := range []string{adopted, lone, clash, readyClash, faulty} {
		suite.Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	block := func(i int) string {
		return fmt.Sprintf("10.50.%d.%d-10.50.%d.%d", 8*i/256, 8*i%256, 8*i/256, 8*i%256+4)
	}

	// An earlier allocator has left 200 ranges of five, with gaps of three, in status
	// alone.
	suite.Create(t, c, domainPool(adopted, "10.50.0.0/20"))
	for i := range 200 {
		a := claim(adopted, fmt.Sprintf("old-%03d", i), 5)
		suite.Create(t, c, a)
		earlier(t, c, a, fmt.Sprintf("10.50.%d.%d", 8*i/256, 8*i%256), fmt.Sprintf("10.50.%d.%d", 8*i/256, 8*i%256+4))
	}
	// The pool of one is gone.
	alone := claim(lone, "old", 5)
	suite.Create(t, c, alone)
	earlier(t, c, alone, "10.50.0.0", "10.50.0.4")
	// Two name the same addresses.
	older, younger := pinned(clash, "z-older", "10.51.0.0-10.51.0.7"), pinned(clash, "a-younger", "10.51.0.4-10.51.0.11")
	suite.Create(t, c, domainPool(clash, "10.51.0.0/24"), older)
	createLater(t, c, older, younger)
	// Two name the same addresses, and the younger is in use.
	olderIdle, youngerReady := claim(readyClash, "older", 8), claim(readyClash, "younger", 8)
	suite.Create(t, c, domainPool(readyClash, "10.52.0.0/24"), olderIdle)
	createLater(t, c, olderIdle, youngerReady)
	earlier(t, c, youngerReady, "10.52.0.0", "10.52.0.7")
	suite.Change(t, c, olderIdle, func(a *v1alpha1.IPAllocation) {
		a.Spec.PinnedRange = pinned("", "", "10.52.0.0-10.52.0.7").Spec.PinnedRange
	})
	// A pool breaks a rule that no schema can state, and has an allocation.
	breaks, old := domainPool(faulty, "10.53.0.0/24", "10.53.0.16-10.53.0.99"), claim(faulty, "old", 1)
	breaks.Spec.Reserved = []v1alpha1.ReservedRange{{CIDR: "10.53.0.0/27"}}
	suite.Create(t, c, breaks, old)
	earlier(t, c, old, "10.53.0.99", "10.53.0.99")

	if err := s.InstallWebhooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	manager, err := s.AddManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conflicts := func(want int) {
		t.Helper()
		suite.AwaitText(t, func(ctx context.Context) (string, error) {
			return suite.GetURL(ctx, "http://"+manager.MetricsAddress+"/metrics")
		},
			fmt.Sprintf("butler_ipam_address_conflicts %d\n", want))
	}

	t.Run("from_status", func(t *testing.T) {
		counts(t, c, adopted, 200, isReady)
		counts(t, c, adopted, 200, func(a *v1alpha1.IPAllocation) bool {
			return a.Annotations[v1alpha1.AnnotationOrigin] == v1alpha1.OriginAdopted && a.Status.ObservedGeneration == a.Generation
		})
		var list v1alpha1.IPAllocationList
		if err := c.List(t.Context(), &list, client.InNamespace(adopted)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			a := &list.Items[i]
			if got := addressesOf(a); got != block(i) || got != a.Status.StartAddress+"-"+a.Status.EndAddress || a.Status.AllocatedAt.Unix() != earlierSince ||
				a.Status.CIDR != "" || !slices.Equal(a.Finalizers, []string{v1alpha1.FinalizerIPAllocation}) {
				t.Errorf("%s: %s, want %s; finalizers %q, status %+v", a.Name, got, block(i), a.Finalizers, a.Status)
			}
		}
	})

	t.Run("without_a_pool", func(t *testing.T) {
		readyWith(t, c, alone, "10.50.0.0-10.50.0.4")
		suite.AwaitObject(t, c, alone, func(a *v1alpha1.IPAllocation) string {
			if !isReady(a) || a.Status.ObservedGeneration != 2 {
				return fmt.Sprintf("status %+v", a.Status)
			}
			return ""
		})
	})

	t.Run("adopted_addresses_are_not_allocated", func(t *testing.T) {
		first, between := claim(adopted, "next", 4), claim(adopted, "between", 3)
		// The first start among objects grants nothing for the life of a grant: a journal
		// may have been lost.
		suite.Eventually(t, 2*grantLife, func(ctx context.Context) error { return c.Create(ctx, first) })
		suite.Create(t, c, between)
		if addressesOf(first) != "10.50.6.61-10.50.6.64" || addressesOf(between) != "10.50.0.5-10.50.0.7" {
			t.Errorf("ranges %s and %s", addressesOf(first), addressesOf(between))
		}
	})

	t.Run("conflict_goes_to_the_older", func(t *testing.T) {
		phase := unready(t, c, younger, v1alpha1.ReasonAddressConflict, "10.51.0.4-10.51.0.7 is owned by ipallocations/z-older")
		readyWith(t, c, older, "")
		if phase != v1alpha1.PhaseFailed || older.Annotations[v1alpha1.AnnotationOrigin] != v1alpha1.OriginAdopted || addressesOf(younger) != "10.51.0.4-10.51.0.11" {
			t.Errorf("the older has annotations %v, the younger is %s with %s", older.Annotations, phase, addressesOf(younger))
		}
		if reasons := suite.AwaitEvent(t, c, younger, "AddressConflict", ""); len(reasons) != 1 {
			t.Errorf("events %q", reasons)
		}
		conflicts(2)
		if err := c.Delete(t.Context(), older); err != nil {
			t.Fatal(err)
		}
		readyWith(t, c, younger, "10.51.0.4-10.51.0.11")
		conflicts(1)
	})

	t.Run("conflict_goes_to_the_one_in_use", func(t *testing.T) {
		unready(t, c, olderIdle, v1alpha1.ReasonAddressConflict, "")
		readyWith(t, c, youngerReady, "10.52.0.0-10.52.0.7")
	})

	t.Run("invalid_pool_allocates_nothing_until_it_is_corrected", func(t *testing.T) {
		suite.RequireDenied(t, c.Create(t.Context(), claim(faulty, "new", 1)), 403, "pool faulty/pool breaks a rule and allocates no addresses until it is corrected: spec.reserved[0].cidr: ")
		correct := func(last string) error {
			return suite.TryChange(t, c, breaks, func(p *v1alpha1.NetworkPool) {
				p.Spec.Reserved, p.Spec.TenantAllocation.Ranges[0].End = nil, last
			})
		}
		suite.RequireDenied(t, correct("10.53.0.98"), 403, "10.53.0.99 would leave the pool's ranges while it is owned by ipallocations/old")
		if err := correct("10.53.0.99"); err != nil {
			t.Fatal(err)
		}
		readyWith(t, c, old, "10.53.0.99-10.53.0.99")
		a := claim(faulty, "new", 1)
		suite.Create(t, c, a)
		if got := addressesOf(a); got != "10.53.0.16-10.53.0.16" {
			t.Errorf("range %s", got)
		}
	})

	t.Run("conflict_while_the_webhooks_are_gone", func(t *testing.T) {
		for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
			suite.Kubectl(t, s, "", "delete", kind, "--all")
		}
		thief := pinned(clash, "thief", "10.51.0.8-10.51.0.8")
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return c.Create(ctx, thief) }) // denied until the API server observes the end of the webhooks
		unready(t, c, thief, v1alpha1.ReasonAddressConflict, "")
	})
}
