package butler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// The API server calls no webhooks here: the reconcilers allocate.
func TestWithoutWebhooks(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{ClusterAPI: true})
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
	for _, k := range suite.Kinds {
		t.Run("owners_of_addresses_that_their_pool_does_not_offer/"+k.Name, func(t *testing.T) { ownersWithoutOffer(t, c, k) })
	}
}

// ownersWithoutOffer changes the pool of an owner. The owner stays Ready, and its
// conditions and events report the missing offer as long as it lasts.
func ownersWithoutOffer(t *testing.T, c client.Client, k suite.Kind) {
	ns := suite.CreateNamespace(t, c)
	pool, owner := k.Pool(ns, "10.0.0.1", "10.0.0.9"), k.Claim(ns, "owner", "")
	suite.Create(t, c, pool, owner)
	k.Binds(t, c, owner, "10.0.0.1")

	suite.Change(t, c, pool, func(p client.Object) { k.Resize(p, "10.0.0.5", "10.0.0.9") })
	notOffered(t, c, k, owner, v1alpha1.ReasonOutsidePool, poolName(pool)+" does not offer 10.0.0.1: this object still owns its addresses")
	suite.Change(t, c, pool, func(p client.Object) { k.Resize(p, "10.0.0.1", "10.0.0.9") })
	notOffered(t, c, k, owner, "", "")

	if err := c.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	suite.Change(t, c, pool, func(p client.Object) { p.SetFinalizers(nil) })
	suite.AwaitGone(t, c, pool)
	notOffered(t, c, k, owner, v1alpha1.ReasonPoolNotFound, poolName(pool)+" does not exist: this object still owns its addresses")
	again := k.Pool(ns, "10.0.0.1", "10.0.0.9")
	suite.Create(t, c, again)
	notOffered(t, c, k, owner, "", "")
}

func poolName(pool client.Object) string {
	return "pool " + strings.TrimPrefix(pool.GetNamespace()+"/"+pool.GetName(), "/")
}

// notOffered waits until an owner is Ready with this reason and message of condition
// NotOffered, "" for no condition, and has an event with the message. The status of an
// IPClaim has no conditions.
func notOffered(t *testing.T, c client.Client, k suite.Kind, owner client.Object, reason, message string) {
	t.Helper()
	suite.AwaitObject(t, c, owner, func(o client.Object) string {
		if !k.Bound(o) || k.Failure(o) != "" {
			return "not Ready: " + k.Failure(o)
		}
		var conditions []metav1.Condition
		switch o := o.(type) {
		case *v1alpha1.IPAllocation:
			conditions = o.Status.Conditions
		case *ipamv1.IPAddressClaim:
			conditions = o.Status.Conditions
		case *novaedgev1.ProxyVIP:
			conditions = o.Status.Conditions
			bound := meta.FindStatusCondition(conditions, novaedgev1.ConditionBound)
			if strings.Contains(bound.Message, o.Spec.PoolRef.Name) != (reason == "") {
				return "Bound: " + bound.Message
			}
		default:
			return ""
		}
		is := meta.FindStatusCondition(conditions, v1alpha1.ConditionNotOffered)
		if reason == "" && is != nil || reason != "" && (is == nil || is.Status != metav1.ConditionTrue || is.Reason != reason || !strings.HasPrefix(is.Message, message)) {
			return fmt.Sprintf("condition %+v, want %s: %s", is, reason, message)
		}
		return ""
	})
	if reason != "" {
		suite.AwaitEvent(t, c, owner, "NotOffered", message)
	}
}
