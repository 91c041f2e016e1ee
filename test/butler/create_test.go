package butler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// manifest is an IPAllocation as a person writes it; more is added to its spec.
func manifest(name, more string) string {
	if strings.HasSuffix(name, "-") {
		name = "generateName: " + name
	} else {
		name = "name: " + name
	}
	return fmt.Sprintf(`apiVersion: butler.butlerlabs.dev/v1alpha1
kind: IPAllocation
metadata: {%s}
spec: {poolRef: {name: pool}, tenantClusterRef: {name: web, namespace: team-a}, type: nodes%s}
`, name, more)
}

const start = "-o=jsonpath={.spec.pinnedRange.startAddress}-{.spec.pinnedRange.endAddress}"

func TestIPAllocation_KubectlCreatePrintsAddresses(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.1.0.0/24"))
	for _, tc := range []struct{ name, more, want string }{
		{"count", ", count: 8", "10.1.0.0-10.1.0.7"},
		{"fixed", ", pinnedRange: {startAddress: 10.1.0.100, endAddress: 10.1.0.109}", "10.1.0.100-10.1.0.109"},
		{"generated-", ", count: 4", "10.1.0.8-10.1.0.11"},
		{"default", "", "10.1.0.12-10.1.0.16"},
	} {
		if got, _ := suite.Kubectl(t, cluster, manifest(tc.name, tc.more), "create", "-n", ns, "-f", "-", start); got != tc.want {
			t.Errorf("kubectl create %s printed %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestIPAllocation_CreateResponse(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.2.0.0/24"))
	auto, fixed := claim(ns, "auto", 6), pinned(ns, "fixed", "10.2.0.100-10.2.0.103")
	auto.Labels = map[string]string{v1alpha1.LabelTeam: "platform"}
	suite.Create(t, admin, auto, fixed)
	for _, tc := range []struct {
		claim             *v1alpha1.IPAllocation
		wantCount         int32
		wantOrigin, wTeam string
	}{{auto, 6, v1alpha1.OriginAuto, "platform"}, {fixed, 4, v1alpha1.OriginPinned, "team-a"}} {
		a := tc.claim
		if got := ptr.Deref(a.Spec.Count, 0); got != tc.wantCount {
			t.Errorf("%s: count %d, want %d", a.Name, got, tc.wantCount)
		}
		if got := a.Annotations[v1alpha1.AnnotationOrigin]; got != tc.wantOrigin {
			t.Errorf("%s: origin %q, want %q", a.Name, got, tc.wantOrigin)
		}
		if got := a.Annotations[v1alpha1.AnnotationGrant]; len(got) != 16 {
			t.Errorf("%s: token %q, want 16 characters", a.Name, got)
		}
		if diff := cmp.Diff([]string{v1alpha1.FinalizerIPAllocation}, a.Finalizers); diff != "" {
			t.Errorf("%s: finalizers (-want +got):\n%s", a.Name, diff)
		}
		want := map[string]string{
			v1alpha1.LabelNetworkPool: "pool", v1alpha1.LabelTenant: "web", v1alpha1.LabelTeam: tc.wTeam, v1alpha1.LabelAllocationType: "nodes",
		}
		if diff := cmp.Diff(want, a.Labels); diff != "" {
			t.Errorf("%s: labels (-want +got):\n%s", a.Name, diff)
		}
	}
	if auto.Annotations[v1alpha1.AnnotationGrant] == fixed.Annotations[v1alpha1.AnnotationGrant] {
		t.Error("two answers carry one token")
	}
}

func TestIPAllocation_DefaultCount(t *testing.T) {
	ns := namespace(t)
	bare, own := pool(ns, "10.3.0.0/24"), pool(ns, "10.3.1.0/24")
	own.Name = "own"
	own.Spec.RoutingDomain = "dc1"
	own.Spec.TenantAllocation = &v1alpha1.TenantAllocation{Defaults: &v1alpha1.AllocationDefaults{NodesPerTenant: 3, LBPoolPerTenant: 12}}
	suite.Create(t, admin, bare, own)
	for _, tc := range []struct {
		pool string
		kind v1alpha1.IPAllocationType
		want int32
	}{{"pool", v1alpha1.TypeNodes, 5}, {"pool", v1alpha1.TypeLoadBalancer, 8}, {"own", v1alpha1.TypeNodes, 3}, {"own", v1alpha1.TypeLoadBalancer, 12}} {
		a := claim(ns, "a-", 0)
		a.Spec.PoolRef.Name, a.Spec.Type = tc.pool, tc.kind
		suite.Create(t, admin, a)
		if got := ptr.Deref(a.Spec.Count, 0); got != tc.want {
			t.Errorf("%s of %s: count %d, want %d", tc.kind, tc.pool, got, tc.want)
		}
		if got, want := a.Labels[v1alpha1.LabelRoutingDomain], map[string]string{"own": "dc1"}[tc.pool]; got != want {
			t.Errorf("%s of %s: routing domain %q, want %q", tc.kind, tc.pool, got, want)
		}
	}
}

// The pool is not in the manager's cache yet in a good part of the rounds.
func TestIPAllocation_RightAfterItsPool(t *testing.T) {
	ns := namespace(t)
	for i := range 40 {
		p, a := pool(ns, fmt.Sprintf("10.4.%d.0/28", i)), claim(ns, fmt.Sprintf("a-%d", i), 0)
		p.Name = fmt.Sprintf("pool-%d", i)
		a.Spec.PoolRef.Name = p.Name
		suite.Create(t, admin, p, a)
		if got, want := addressesOf(a), fmt.Sprintf("10.4.%d.0-10.4.%d.4", i, i); got != want {
			t.Errorf("round %d: range %q, want %q", i, got, want)
		}
	}
}

// A growth that was just stored is not in the manager's cache yet either.
func TestIPAllocation_RightAfterItsPoolGrew(t *testing.T) {
	ns := namespace(t)
	p := pool(ns, "10.5.0.0/30")
	suite.Create(t, admin, p, claim(ns, "first", 4))
	for bits := 29; bits > 22; bits-- {
		p.Spec.CIDR = fmt.Sprintf("10.5.0.0/%d", bits)
		if err := update(t, p); err != nil {
			t.Fatal(err)
		}
		suite.Create(t, admin, claim(ns, "half-", 1<<(31-bits)))
	}
}

// update writes a pool's spec onto whatever version is stored: the manager writes to
// pools too.
func update(t *testing.T, p *v1alpha1.NetworkPool, options ...client.UpdateOption) error {
	t.Helper()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		stored := &v1alpha1.NetworkPool{}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(p), stored); err != nil {
			return err
		}
		stored.Spec = p.Spec
		return admin.Update(t.Context(), stored, options...)
	})
}

// Else who may create claims in one namespace could have the addresses of all others, and
// of every pool to come.
func TestIPAllocation_BeforeItsPoolOwnsNothing(t *testing.T) {
	ns, own := namespace(t), suite.CreateNamespace(t, admin)
	suite.Create(t, admin, pool(ns, "10.39.0.0/28"), pinned(ns, "seen", "10.39.0.15-10.39.0.15"))
	thief, everything, next := pinned(own, "thief", "10.39.0.0-10.39.0.3"), pinned(own, "everything", "0.0.0.0-255.255.255.255"), pinned(own, "next", "10.39.0.2-10.39.0.3")
	suite.Create(t, admin, thief, everything, next)
	says(t, suite.Soon, everything, "does not exist")
	for _, a := range []*v1alpha1.IPAllocation{thief, everything} { // as if it had been answered
		suite.Change(t, admin, a, func(a *v1alpha1.IPAllocation) {
			metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationOrigin, v1alpha1.OriginPinned)
			metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationGrant, strings.Repeat("a", 16))
		})
		if token := a.Annotations[v1alpha1.AnnotationGrant]; token != "" {
			t.Errorf("%s carries token %q", a.Name, token)
		}
	}
	first, rest := claim(ns, "first", 4), claim(ns, "rest", 8)
	suite.Create(t, admin, first)
	if got := addressesOf(first); got != "10.39.0.0-10.39.0.3" {
		t.Errorf("its own pool gives %s", got)
	}

	// With its pool it is a matter of who has the addresses, and of what that offers.
	suite.Create(t, admin, pool(own, "10.39.0.0/29"))
	says(t, suite.Soon, thief, "is owned")
	says(t, suite.Soon, next, "is owned")
	says(t, suite.Soon, everything, "0.0.0.0-255.255.255.255 is outside the pool")
	suite.Create(t, admin, rest)
	if got := addressesOf(rest); got != "10.39.0.4-10.39.0.11" {
		t.Errorf("its own pool gives %s", got)
	}
	for _, a := range []*v1alpha1.IPAllocation{thief, everything, next} {
		suite.Delete(t, admin, a)
	}
	np := &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "pool"}}
	suite.AwaitObject(t, admin, np, func(p *v1alpha1.NetworkPool) string {
		if p.Status.AllocationCount == 0 {
			return ""
		}
		return fmt.Sprintf("%d allocations", p.Status.AllocationCount)
	})
	suite.Delete(t, admin, np) // which nobody holds anything of
	suite.AwaitGone(t, admin, np)

	// Who reserves what somebody has of another pool is told.
	_, warning := suite.Kubectl(t, cluster, "{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: NetworkPool, metadata: {name: over}, "+
		"spec: {cidr: 10.39.0.0/27, reserved: [{cidr: 10.39.0.8/29}]}}", "create", "-n", ns, "--dry-run=server", "-f", "-")
	if want := "pool " + ns + "/over offers addresses that are not free: "; !strings.Contains(warning, want) {
		t.Errorf("kubectl wrote %q, want a warning that says %q", warning, want)
	}
}

// What holds nothing takes nothing when it is deleted either, and rests nowhere.
func TestIPAllocation_WithoutAddressesLeavesNoRecord(t *testing.T) {
	ns, own := namespace(t), suite.CreateNamespace(t, admin)
	evil, world := pinned(own, "evil", "10.92.0.0-10.92.255.255"), pinned(own, "world", "10.92.0.0-10.93.255.255")
	evil.Spec.PoolRef.Name = "missing"
	evil.Finalizers = []string{"example.com/hold"}
	p := pool(own, "10.94.0.0/28")
	p.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour}
	suite.Create(t, admin, evil, world, p)
	says(t, suite.Soon, world, "outside the pool")
	for _, a := range []*v1alpha1.IPAllocation{evil, world} {
		if err := admin.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	suite.AwaitGone(t, admin, world)
	suite.AwaitObject(t, admin, evil, func(a *v1alpha1.IPAllocation) string {
		if len(a.Finalizers) == 1 {
			return ""
		}
		return fmt.Sprintf("finalizers %q", a.Finalizers)
	})
	err := suite.TryChange(t, admin, evil, func(a *v1alpha1.IPAllocation) {
		metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationGrant, "AAAAAAAAAAAAAAA1")
	})
	suite.RequireDenied(t, err, 422, "butler.butlerlabs.dev/grant", "is set by the allocator")
	suite.Create(t, admin, pool(ns, "10.92.0.0/28"))
	all := claim(ns, "all", 16)
	suite.Create(t, admin, all)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || len(p.Status.Releases) > 0 {
		t.Errorf("%+v are recorded, %v", p.Status.Releases, err)
	}
	suite.Change(t, admin, evil, func(a *v1alpha1.IPAllocation) { a.Finalizers = nil })
}

// Nor does what its pool, or another, keeps from everybody.
func TestIPAllocation_ReservedRangeIsNotOwned(t *testing.T) {
	ns, own := namespace(t), suite.CreateNamespace(t, admin)
	a := pinned(own, "a", "10.95.0.4-10.95.0.7")
	p := pool(ns, "10.95.0.0/24")
	p.Spec.Reserved = []v1alpha1.ReservedRange{{CIDR: "10.95.0.4/31"}}
	suite.Create(t, admin, a, p, pool(own, "10.95.0.0/24"))
	says(t, suite.Soon, a, "is reserved")
	suite.Create(t, admin, pinned(ns, "beside", "10.95.0.6-10.95.0.7"))
	suite.Change(t, admin, p, func(p *v1alpha1.NetworkPool) { p.Spec.Reserved = nil })
	says(t, suite.Soon, a, "is owned")
}

// A backup is restored kind by kind: what claims of before name is theirs as soon as
// their pool is there, whoever asks that for some.
func TestIPAllocation_PinnedBeforeItsPoolIsServedFirst(t *testing.T) {
	ns := namespace(t)
	early := pinned(ns, "early", "10.90.0.0-10.90.0.3")
	suite.Create(t, admin, claim(ns, "any", 4), early)
	says(t, suite.Soon, early, "does not exist") // the manager has observed early before the pool
	suite.Create(t, admin, pool(ns, "10.90.0.0/29"))
	_ = admin.Create(t.Context(), claim(ns, "next", 4)) // one of the two that name nothing has the rest
	suite.AwaitObject(t, admin, early, func(a *v1alpha1.IPAllocation) string {
		if a.Status.Phase == v1alpha1.PhaseAllocated && addressesOf(a) == "10.90.0.0-10.90.0.3" {
			return ""
		}
		return fmt.Sprintf("it is %s with %s", a.Status.Phase, addressesOf(a))
	})
}

func TestGrant_TokenInACreateProvesNothing(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.7.0.0/28"))
	first := claim(ns, "first", 4)
	suite.Create(t, admin, first)

	thief := claim(ns, "thief", 0)
	thief.Annotations = first.Annotations
	thief.Spec.PinnedRange = first.Spec.PinnedRange
	suite.RequireDenied(t, admin.Create(t.Context(), thief), 403, "pool "+ns+"/pool", addressesOf(first)+" is owned by ipallocations/first")

	moved := pinned(ns, "moved", "10.7.0.8-10.7.0.11")
	moved.Annotations = map[string]string{v1alpha1.AnnotationGrant: first.Annotations[v1alpha1.AnnotationGrant], v1alpha1.AnnotationOrigin: "adopted"}
	suite.Create(t, admin, moved)
	if moved.Annotations[v1alpha1.AnnotationGrant] == first.Annotations[v1alpha1.AnnotationGrant] {
		t.Error("the token of another allocation was kept")
	}
	if got := moved.Annotations[v1alpha1.AnnotationOrigin]; got != v1alpha1.OriginPinned {
		t.Errorf("origin %q, want %q", got, v1alpha1.OriginPinned)
	}
}

func TestGrant_OfAFailedCreateIsNamedInTheDenial(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.41.0.0/28"))
	first := pinned(ns, "first", "10.41.0.3-10.41.0.4")
	first.Labels = map[string]string{"fails": ns}
	suite.CreateDenyingPolicy(t, admin, ns, admissionregistrationv1.MatchResources{
		ObjectSelector: &metav1.LabelSelector{MatchLabels: first.Labels},
		ResourceRules:  suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Create}, "ipallocations", "butler.butlerlabs.dev"),
	})
	suite.Eventually(t, time.Minute, func(ctx context.Context) error { // once the API server has compiled the policy
		err := admin.Create(ctx, first.DeepCopy())
		if err == nil || !strings.Contains(err.Error(), "refused by a policy") {
			return errors.Join(fmt.Errorf("it is not refused yet: %w", err), client.IgnoreNotFound(admin.Delete(ctx, first.DeepCopy())))
		}
		return nil
	})
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		err := admin.Create(ctx, pinned(ns, "second", "10.41.0.3-10.41.0.4"))
		if err == nil || !strings.Contains(err.Error(), "is owned by ipallocations/first, whose create is in flight or has failed: ask for another range, or try again in two minutes") {
			return fmt.Errorf("refused with: %w", err)
		}
		return nil
	})
}

// A create of a name that exists is denied as the API server would deny it, and costs no
// grant; the next create after the deletion is served at once.
func TestCreate_OfANameThatExistsLeavesNoGrant(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.58.0.0/24"))
	suite.Create(t, admin, claim(ns, "web", 1))
	suite.Eventually(t, suite.Soon, func(context.Context) error { // the manager has observed it, and the journal has dropped its grant
		if open := openGrants(t, ns); len(open) > 0 {
			return fmt.Errorf("%d grants are open", len(open))
		}
		return nil
	})
	for range 60 {
		err := admin.Create(t.Context(), claim(ns, "web", 1))
		if !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), `ipallocations.butler.butlerlabs.dev "web" already exists`) {
			t.Fatal(err)
		}
	}
	if err := admin.Create(t.Context(), claim(ns, "web", 1), client.DryRunAll); !apierrors.IsAlreadyExists(err) {
		t.Errorf("dry run: %v", err)
	}
	if open := openGrants(t, ns); len(open) > 0 {
		t.Errorf("%d grants are open", len(open))
	}
	for range 20 {
		suite.Delete(t, admin, claim(ns, "web", 1))
		suite.Create(t, admin, claim(ns, "web", 1))
	}
	if _, _, err := cluster.Kubectl(t.Context(), manifest("web", ", count: 1"), "apply", "--server-side", "--force-conflicts", "-n", ns, "-f", "-"); err != nil {
		t.Errorf("apply of a name that exists: %v", err)
	}
}

func TestIPAllocation_CountBesidePinnedRange(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.8.0.0/28"))
	out, warning := suite.Kubectl(t, cluster, manifest("both", ", count: 9, pinnedRange: {startAddress: 10.8.0.2, endAddress: 10.8.0.3}"), "create", "-n", ns, "-f", "-",
		"-o=jsonpath={.spec.count} {.spec.pinnedRange.startAddress}")
	if out != "9 10.8.0.2" || !strings.Contains(warning, "spec.count 9 is ignored: spec.pinnedRange requests 2 addresses") {
		t.Errorf("got %q and %q, want what was written, and a warning", out, warning)
	}
}

func TestIPAllocation_IPv6(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "2001:db8::/64"))
	a, b := claim(ns, "a", 4), pinned(ns, "b", "2001:db8::1:0-2001:db8::ffff:ffff:ffff")
	suite.Create(t, admin, a, b)
	if got := addressesOf(a); got != "2001:db8::-2001:db8::3" {
		t.Errorf("range %q, want 2001:db8::-2001:db8::3", got)
	}
	if b.Spec.Count != nil {
		t.Errorf("count %d of a range with more addresses than it can say", *b.Spec.Count)
	}
}
