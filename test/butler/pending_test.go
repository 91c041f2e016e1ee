package butler

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// The API server calls no webhooks here: the reconcilers allocate.
func TestWithoutWebhooks(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{})
	if _, err := s.AddManager(t.Context(), "--shutdown-delay=0s"); err != nil {
		t.Fatal(err)
	}

	t.Run("claims_get_all_that_a_create_gives", func(t *testing.T) {
		ns := suite.CreateNamespace(t, c)
		a, b := claim(ns, "counted", 3), claim(ns, "by-default", 0)
		a.Spec.Type = v1alpha1.TypeLoadBalancer
		suite.Create(t, c, halfPool(ns), a, b)
		readyWith(t, c, a, "")
		readyWith(t, c, b, "")
		if !slices.Equal(a.Finalizers, []string{v1alpha1.FinalizerIPAllocation}) || a.Annotations[v1alpha1.AnnotationGrant] == "" || len(a.Status.Addresses) != 3 {
			t.Errorf("finalizers %q, annotations %v, addresses %q", a.Finalizers, a.Annotations, a.Status.Addresses)
		}
		if want := (map[string]string{
			v1alpha1.LabelNetworkPool: "pool", v1alpha1.LabelTenant: "web", v1alpha1.LabelTeam: "team-a",
			v1alpha1.LabelAllocationType: "loadbalancer", v1alpha1.LabelRoutingDomain: ns,
		}); !maps.Equal(a.Labels, want) {
			t.Errorf("labels %v, want %v", a.Labels, want)
		}
		if got := ptr.Deref(b.Spec.Count, 0); got != 5 {
			t.Errorf("count %d, the default of type nodes is 5", got)
		}
	})

	t.Run("full_pool_serves_the_older_first_when_it_grows", func(t *testing.T) {
		ns := suite.CreateNamespace(t, c)
		p := domainPool(ns, "10.45.0.0/29")
		suite.Create(t, c, p, claim(ns, "all", 8))
		shows(t, c, p, "8/8/0")
		older, younger := claim(ns, "z-older", 4), claim(ns, "a-younger", 4)
		suite.Create(t, c, older)
		if phase := unready(t, c, older, v1alpha1.ReasonPoolExhausted, ""); phase != v1alpha1.PhaseFailed {
			t.Errorf("phase %s", phase)
		}
		if reasons := suite.AwaitEvent(t, c, older, "AllocationFailed", ""); len(reasons) != 1 {
			t.Errorf("events %q", reasons)
		}
		createLater(t, c, older, younger)
		if phase := unready(t, c, younger, v1alpha1.ReasonPoolExhausted, ""); phase != v1alpha1.PhaseFailed {
			t.Errorf("phase %s", phase)
		}
		suite.Change(t, c, p, func(p *v1alpha1.NetworkPool) { p.Spec.CIDR = "10.45.0.0/28" })
		readyWith(t, c, older, "10.45.0.8-10.45.0.11")
		readyWith(t, c, younger, "10.45.0.12-10.45.0.15")
	})

	t.Run("full_pool_serves_after_a_release", func(t *testing.T) {
		ns := suite.CreateNamespace(t, c)
		owner, waits := claim(ns, "owner", 8), claim(ns, "next", 2)
		suite.Create(t, c, domainPool(ns, "10.46.0.0/29"), owner)
		readyWith(t, c, owner, "")
		suite.Create(t, c, waits)
		unready(t, c, waits, v1alpha1.ReasonPoolExhausted, "")
		if err := c.Delete(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
		readyWith(t, c, waits, "")
	})

	t.Run("invalid_ranges_fail", func(t *testing.T) {
		ns := suite.CreateNamespace(t, c)
		p := domainPool(ns, "10.47.0.0/24")
		p.Spec.Reserved = []v1alpha1.ReservedRange{{CIDR: "10.47.0.0/28"}}
		suite.Create(t, c, p)
		for addresses, want := range map[string]string{
			"10.48.0.0-10.48.0.3": "is outside the pool", "10.47.0.0-10.47.0.3": "is reserved", "10.47.0.99-10.47.0.90": "is reversed",
		} {
			a := pinned(ns, "a-", addresses)
			suite.Create(t, c, a)
			if phase := unready(t, c, a, v1alpha1.ReasonAllocationFailed, want); phase != v1alpha1.PhaseFailed {
				t.Errorf("phase %s", phase)
			}
		}
	})

	t.Run("a_hundred_claims_are_answered_once_each", func(t *testing.T) {
		ns := suite.CreateNamespace(t, c)
		for i := range 100 {
			suite.Create(t, c, claim(ns, fmt.Sprintf("many-%02d", i), 1))
		}
		counts(t, c, ns, 100, func(a *v1alpha1.IPAllocation) bool { return a.Status.Phase == v1alpha1.PhasePending })
		suite.Create(t, c, domainPool(ns, "10.49.0.0/24"))
		counts(t, c, ns, 100, isReady)
		var list v1alpha1.IPAllocationList
		if err := c.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		claims := make([]*v1alpha1.IPAllocation, len(list.Items))
		for i := range list.Items {
			if claims[i] = &list.Items[i]; claims[i].Generation != 2 {
				t.Errorf("%s was written %d times", claims[i].Name, claims[i].Generation)
			}
		}
		distinct(t, claims)
	})
}
