package metal3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

func TestAddressObject_OfOthersCountsFromItsCreate(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			p, nobody := ten(ns, "pool"), "_nobody" // as no claim can be called
			p.Spec.PreAllocations = map[string]v1alpha1.IP{"_gateway": "10.0.0.2"}
			if k.name == ipAddressClaims.name {
				nobody = "no-such-claim" // Cluster API's schema takes no other name
			}
			suite.Create(t, admin, p, k.holds(ns, "router", "pool", nobody, "10.0.0.1"))
			k.gets(t, k.claim(ns, "web", "pool", ""), "10.0.0.3")
			suite.RequireDenied(t, admin.Create(t.Context(), k.claim(ns, "greedy", "pool", "10.0.0.1")), 403, "Requested IP not available")
			suite.RequireDenied(t, admin.Create(t.Context(), k.holds(ns, "thief", "pool", "other", "10.0.0.3")), 403, "10.0.0.3", "web")
			suite.Create(t, admin, k.holds(ns, "outside", "pool", "elsewhere", "10.9.0.1")) // as Metal3 does
		})
	}
}

// Outside of its pool as well. What is there for its claim that gets.
func TestAddressObject_OutsideThePoolHasOneOwner(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			suite.Create(t, admin, ten(ns, "pool"), k.holds(ns, "first", "pool", "web", "10.9.0.1"))
			for _, other := range bothKinds {
				suite.RequireDenied(t, admin.Create(t.Context(), other.holds(ns, "second", "pool", "db", "10.9.0.1")), 403, "10.9.0.1", "is owned by ipaddresses/first")
			}
			c := k.claim(ns, "web", "pool", "")
			k.gets(t, c, "10.9.0.1")
			suite.Create(t, admin, k.holds(ns, "again", "pool", "web", "10.9.0.1")) // which its claim has
		})
	}
}

func TestAddressObject_BeforeItsClaim(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool, before := ten(ns, "pool"), k.holds(ns, "manual", "pool", "web", "10.0.0.8")
			suite.Create(t, admin, pool, before)
			indexesBecome(t, pool, map[string]v1alpha1.IP{"web": "10.0.0.8"}) // by then the manager has seen it
			c := k.claim(ns, "web", "pool", "")
			k.gets(t, c, "10.0.0.8")
			if name, _ := k.address(stored(t, c)); name != "manual" {
				t.Errorf("the claim names %s", name)
			}
			suite.Delete(t, admin, c)
			suite.AwaitGone(t, admin, before)
		})
	}
}

// Its claim lost its finalizer, and another of the name comes: the address is that one's,
// and says so.
func TestAddressObject_LeftBehindIsTheNextClaims(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			suite.Create(t, admin, ten(ns, "pool"))
			first := k.claim(ns, "web", "pool", "")
			k.gets(t, first, "10.0.0.1")
			suite.Change(t, admin, first, func(c client.Object) { c.SetFinalizers([]string{"example.com/test"}) })
			if err := admin.Delete(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			suite.Change(t, admin, first, func(c client.Object) { c.SetFinalizers(nil) })
			suite.AwaitGone(t, admin, first)
			next := k.claim(ns, "web", "pool", "")
			k.gets(t, next, "10.0.0.1")
			name, _ := k.address(stored(t, next))
			suite.AwaitObject(t, admin, k.holds(ns, name, "pool", "web", "10.0.0.1"), func(o client.Object) string {
				var owners []string
				for _, r := range o.GetOwnerReferences() {
					owners = append(owners, r.Kind+" "+string(r.UID))
				}
				if len(owners) == 2 && slices.Contains(owners, k.name+" "+string(next.GetUID())) {
					return ""
				}
				return fmt.Sprintf("owners %q, want %s among two", owners, next.GetUID())
			})
		})
	}
}

// The garbage collector deletes them, and whoever cleans up. Until somebody does, they
// stay for a while: a restore may bring the claim.
func TestAddressObject_WithoutItsClaimCanBeDeleted(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool, c := ten(ns, "pool"), k.claim(ns, "web", "pool", "")
			suite.Create(t, admin, pool)
			k.gets(t, c, "10.0.0.1")
			k.bound(t, c)
			finalizers := func(value string) error {
				return admin.Patch(t.Context(), c, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+value+`}}`)))
			}
			if err := errors.Join(finalizers(`["example.com/hold"]`), admin.Delete(t.Context(), c), finalizers("null")); err != nil {
				t.Fatal(err)
			}
			suite.AwaitGone(t, admin, c)
			left := k.holds(ns, "pool-10-0-0-1", "pool", "", "")
			if err := admin.Delete(t.Context(), left); err != nil {
				t.Fatalf("its address: %v", err)
			}
			suite.AwaitGone(t, admin, left)
			suite.Delete(t, admin, pool)
			suite.AwaitGone(t, admin, pool)
		})
	}
}

// The CRDs of Metal3's own address manager, which stay where it is taken over from, have
// no such rules.
func TestAddressObject_ImmutableUnderACRDWithoutRules(t *testing.T) {
	t.Parallel()
	_, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1})
	suite.RemoveRules(t, c, "ipaddresses.ipam.metal3.io")
	ns := suite.CreateNamespace(t, c)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		err := c.Create(ctx, ipClaims.holds(ns, "try", "pool", "", "10.0.0.9"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "admission webhook") {
			return fmt.Errorf("the rules of the CRD are still in force: %w", err)
		}
		return nil
	})
	suite.Create(t, c, ten(ns, "pool"), ipClaims.claim(ns, "web", "pool", ""), ipClaims.claim(ns, "db", "pool", ""))
	suite.Create(t, c, ipClaims.holds(ns, "router", "pool", "no-such-claim", "10.0.0.8"))
	for _, name := range []string{"pool-10-0-0-1", "router"} { // our own, and somebody else's
		a := &v1alpha1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return c.Get(ctx, client.ObjectKeyFromObject(a), a) })
		for _, tc := range []struct {
			field, says string
			change      func(*v1alpha1.IPAddressSpec)
		}{
			{"spec.address", "address cannot be changed", func(s *v1alpha1.IPAddressSpec) { s.Address = "10.0.0.2" }}, // db's
			{"spec.pool", "name, namespace and kind of the pool", func(s *v1alpha1.IPAddressSpec) { s.Pool.Name = "other" }},
			{"spec.pool", "name, namespace and kind of the pool", func(s *v1alpha1.IPAddressSpec) { s.Pool.Namespace = "other" }},
			{"spec.pool", "name, namespace and kind of the pool", func(s *v1alpha1.IPAddressSpec) { s.Pool.Kind = "Other" }},
			{"spec.claim", "name, namespace and kind of the claim", func(s *v1alpha1.IPAddressSpec) { s.Claim.Name = "db" }},
			{"spec.claim", "name, namespace and kind of the claim", func(s *v1alpha1.IPAddressSpec) { s.Claim.Namespace = "other" }},
			{"spec.claim", "name, namespace and kind of the claim", func(s *v1alpha1.IPAddressSpec) { s.Claim.Kind = "Other" }},
		} {
			err := suite.TryChange(t, c, a, func(a *v1alpha1.IPAddress) { tc.change(&a.Spec) })
			suite.RequireDenied(t, err, 422, "admission webhook", tc.field+": Forbidden: "+tc.says)
		}
		gateway := v1alpha1.IP("10.0.0.254")
		suite.Change(t, c, a, func(a *v1alpha1.IPAddress) {
			a.Spec.Prefix, a.Spec.Gateway, a.Spec.DNSServers, a.Spec.Claim.UID, a.Spec.Pool.UID = 25, &gateway, []v1alpha1.IP{"8.8.8.8"}, "u", "u"
			a.Labels, a.Annotations = map[string]string{"app": "web"}, map[string]string{"example.com/a": "b"}
			a.Finalizers = append(a.Finalizers, "example.com/kept")
		})
		if err := c.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		suite.RequireDenied(t, suite.TryChange(t, c, a, func(a *v1alpha1.IPAddress) { a.Spec.Address = "10.0.0.7" }), 422, "admission webhook", "spec.address: Forbidden")
		suite.Change(t, c, a, func(a *v1alpha1.IPAddress) { a.Finalizers = nil })
	}
}

func TestAddressObject_CreatedAgainWhenDeleted(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, ten(ns, "pool"))
	c := ipClaims.claim(ns, "web", "pool", "")
	ipClaims.gets(t, c, "10.0.0.1")
	a := &v1alpha1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool-10-0-0-1"}}
	was := stored(t, a).UID
	suite.Change(t, admin, a, func(a *v1alpha1.IPAddress) { a.Finalizers = nil })
	if err := client.IgnoreNotFound(admin.Delete(t.Context(), a)); err != nil {
		t.Fatal(err)
	}
	suite.AwaitObject(t, admin, a, func(a *v1alpha1.IPAddress) string {
		if a.UID != was {
			return ""
		}
		return "it is the old one"
	})
}

func TestAddressObject_DeniedByAPolicy(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			suite.Create(t, admin, ten(ns, "pool"))
			forbid := func(operation admissionregistrationv1.OperationType) client.Object {
				return suite.CreateDenyingPolicy(t, admin, ns+"-"+strings.ToLower(string(operation)), admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
					ResourceRules: suite.RulesFor([]admissionregistrationv1.OperationType{operation}, "ipaddresses",
						"ipam.metal3.io", "ipam.cluster.x-k8s.io"),
				})
			}
			refuses := func(do func(context.Context) error) { // the API server compiles policies some time after they are stored
				suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
					if err := do(ctx); err == nil || !strings.Contains(err.Error(), "refused by a policy") {
						return fmt.Errorf("the policy does not refuse it yet: %w", err)
					}
					return nil
				})
			}
			creates := forbid(admissionregistrationv1.Create)
			refuses(func(ctx context.Context) error {
				return admin.Create(ctx, k.holds(ns, "try", "pool", "no-such-claim", "10.0.0.9"), client.DryRunAll)
			})
			c := k.claim(ns, "web", "pool", "")
			suite.Create(t, admin, c)
			if answer(c) != "10.0.0.1" {
				t.Errorf("the answer is %q", answer(c))
			}
			suite.AwaitObject(t, admin, c, func(c client.Object) string {
				if name, failure := k.address(c); name != "" || !strings.HasPrefix(failure, "Failed to create associated IPAddress object: ") ||
					!strings.Contains(failure, "refused by a policy") {
					return fmt.Sprintf("it names %q, and says %q", name, failure)
				}
				return ""
			})
			told(t, c, "AllocationFailed", "Failed to create associated IPAddress object: ", "refused by a policy")

			suite.Delete(t, admin, creates)
			suite.AwaitObject(t, admin, c, func(c client.Object) string {
				if name, failure := k.address(c); name != "pool-10-0-0-1" || failure != "" {
					return fmt.Sprintf("it names %q, and says %q", name, failure)
				}
				return ""
			})

			deletes := forbid(admissionregistrationv1.Delete)
			a := k.holds(ns, "pool-10-0-0-1", "pool", "web", "10.0.0.1")
			refuses(func(ctx context.Context) error { return admin.Delete(ctx, a, client.DryRunAll) })
			if err := admin.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			told(t, c, "ReleaseFailed", "Failed to delete associated IPAddress object: ", "refused by a policy")
			if name, failure := k.address(stored(t, c)); name != "pool-10-0-0-1" || failure != "" {
				t.Errorf("while its address cannot go, the claim names %q, and says %q", name, failure)
			}
			suite.Delete(t, admin, deletes)
			suite.AwaitGone(t, admin, c)
			suite.AwaitGone(t, admin, a)
		})
	}
}

// Cluster API takes more forms of an address than one.
func TestAddressObject_CanonicalForm(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, ten(ns, "pool"))
	for written, says := range map[string]string{
		"::ffff:10.0.0.6": `spec.address: Invalid value: "::ffff:10.0.0.6": must not be IPv4 written as IPv6: write 10.0.0.6`,
		"fe80::1%eth0":    `spec.address: Invalid value: "fe80::1%eth0": must not have a zone: write fe80::1`,
	} {
		suite.RequireDenied(t, admin.Create(t.Context(), ipAddressClaims.holds(ns, "odd", "pool", "nobody", written)), 422, says)
	}
}
