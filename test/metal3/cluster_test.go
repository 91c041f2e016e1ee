package metal3

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

func clusterNamed(ns, name string, paused bool) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: clusterv1.ClusterSpec{
		Paused: ptr.To(paused), InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Cluster", Name: name},
	}}
}

// unassigned creates a claim and fails the test where it has an address.
func unassigned(t *testing.T, c client.Object) {
	t.Helper()
	suite.Create(t, admin, c)
	if answer(c) != "" {
		t.Errorf("%s got %s", c.GetName(), answer(c))
	}
}

func TestPaused_UntilTheClusterExists(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			pool.Spec.ClusterName = ptr.To("c")
			suite.Create(t, admin, pool)
			early := k.claim(ns, "early", "pool", "")
			unassigned(t, early)
			told(t, pool, "WaitingForCluster", "Cluster c of IPPool pool does not exist: not reconciled until the Cluster exists")
			told(t, early, "WaitingForCluster", "Cluster c of IPPool pool does not exist: not reconciled until the Cluster exists")
			named := k.claim(ns, "named", "pool", "10.0.0.7") // who knows its address keeps it, also while all is paused
			goes := k.claim(ns, "goes", "pool", "10.0.0.8")
			suite.Create(t, admin, named, goes)
			told(t, named, "WaitingForCluster", "Cluster c of IPPool pool does not exist: not reconciled until the Cluster exists")
			if len(goes.GetFinalizers()) == 0 {
				t.Error("nothing keeps a claim that has an address")
			}
			suite.Delete(t, admin, goes) // which waits for no Cluster
			suite.Create(t, admin, clusterNamed(ns, "c", true))
			paused := k.claim(ns, "paused", "pool", "")
			unassigned(t, paused)
			c := clusterNamed(ns, "c", true)
			suite.Change(t, admin, c, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) })
			if got := k.bound(t, early); got.Address != "10.0.0.1" {
				t.Errorf("the first claim got %s", got.Address)
			}
			k.bound(t, paused)
			if got := k.bound(t, named); got.Address != "10.0.0.7" {
				t.Errorf("the claim that named its address got %s", got.Address)
			}
			suite.AwaitObject(t, admin, pool, func(p *v1alpha1.IPPool) string {
				if len(p.OwnerReferences) == 1 && p.OwnerReferences[0].UID == c.UID && p.Labels[clusterv1.ClusterNameLabel] == "c" && p.Labels[v1alpha1.LabelProvider] == v1alpha1.Provider {
					return ""
				}
				return fmt.Sprintf("%+v", p.ObjectMeta)
			})

			suite.Change(t, admin, c, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
			becomesPaused(t, k, ns)
			if err := admin.Delete(t.Context(), stored(t, early)); err != nil {
				t.Fatal(err)
			}
			suite.Change(t, admin, c, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) })
			suite.AwaitGone(t, admin, early)
		})
	}
}

// becomesPaused waits until the managers know of a pause, as claims without an address
// show.
func becomesPaused(t *testing.T, k claimKind, ns string) {
	t.Helper()
	for i := range 100 {
		c := k.claim(ns, fmt.Sprintf("probe-%d", i), "pool", "")
		if err := admin.Create(t.Context(), c, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if answer(c) == "" {
			return
		}
	}
	t.Fatal("the managers do not learn of the pause")
}

func TestPaused_ByTheClusterOfTheClaim(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, ten(ns, "pool"))
	c := ipAddressClaims.claim(ns, "web", "pool", "").(*ipamv1.IPAddressClaim)
	c.Spec.ClusterName = "c"
	unassigned(t, c)
	suite.Create(t, admin, clusterNamed(ns, "c", false))
	ipAddressClaims.bound(t, c)
}

func TestPaused_ByAnnotation(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			pool.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			suite.Create(t, admin, pool)
			c := k.claim(ns, "web", "pool", "")
			unassigned(t, c)
			suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
			k.bound(t, c)
		})
	}
}

func TestPaused_ResumesWithItsPool(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			suite.Create(t, admin, pool)
			goes := k.claim(ns, "goes", "pool", "")
			k.gets(t, goes, "10.0.0.1")
			suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
			comes := k.claim(ns, "comes", "pool", "10.0.0.7")
			suite.Create(t, admin, comes)
			becomesPaused(t, k, ns) // the manager observes pools and claims by two watches
			if err := admin.Delete(t.Context(), goes); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // to see that nothing happens
			if name, failure := k.address(stored(t, comes)); name != "" || failure != "" {
				t.Errorf("while the pool is paused, a claim names %q, and says %q", name, failure)
			}
			stored(t, goes)
			suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
			k.bound(t, comes)
			suite.AwaitGone(t, admin, goes)
		})
	}
}

// However short it is, and while the pool's status is written.
func TestPaused_Briefly(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			suite.Create(t, admin, pool)
			for i := range 5 {
				first := k.claim(ns, fmt.Sprint("first-", i), "pool", "")
				suite.Create(t, admin, first)
				k.bound(t, first) // its pool counts it now
				suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
				named := k.claim(ns, fmt.Sprint("named-", i), "pool", fmt.Sprint("10.0.0.", 10-i))
				suite.Create(t, admin, named)
				time.Sleep(100 * time.Millisecond)
				suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
				k.bound(t, named)
			}
		})
	}
}

func TestPaused_Claim(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			suite.Create(t, admin, ten(ns, "pool"), k.holds(ns, "manual", "pool", "there", "10.0.0.8"))
			paused := func(name, asked string) client.Object {
				c := k.claim(ns, name, "pool", asked)
				if c.GetAnnotations() == nil {
					c.SetAnnotations(map[string]string{})
				}
				c.GetAnnotations()[clusterv1.PausedAnnotation] = ""
				return c
			}
			c := paused("web", "")
			unassigned(t, c)
			k.gets(t, k.claim(ns, "db", "pool", ""), "10.0.0.1") // by then the paused claim has been seen
			if stored(t, c); answer(c) != "" {
				t.Errorf("while it is paused it got %s", answer(c))
			}
			for _, has := range []struct{ name, asked, want string }{{"there", "", "10.0.0.8"}, {"named", "10.0.0.7", "10.0.0.7"}} {
				c := paused(has.name, has.asked)
				suite.Create(t, admin, c)
				if answer(c) != has.want {
					t.Errorf("%s got %q, want %s", has.name, answer(c), has.want)
				}
			}
			suite.Change(t, admin, c, func(c client.Object) { c.SetAnnotations(nil) })
			if got := k.bound(t, c); got.Address != "10.0.0.2" {
				t.Errorf("it got %s", got.Address)
			}
		})
	}
}

// What clusterctl looks for before it moves anything.
const blockMove = "clusterctl.cluster.x-k8s.io/block-move"

func TestMove_BlockedWhileAnAddressIsAllocated(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			c := k.claim(ns, "web", "pool", "")
			unassigned(t, c)
			versions := k.watched(t, c)
			suite.Create(t, admin, ten(ns, "pool"))
			k.bound(t, c)
			blocked := false
			for e := range versions {
				v := e.Object.(client.Object)
				_, blocks := v.GetAnnotations()[blockMove]
				if blocked = blocked || blocks; blocks && answer(v) != "" {
					t.Errorf("it has its address and cannot be moved: %v", v.GetAnnotations())
				}
				if answer(v) != "" {
					break
				}
			}
			if !blocked {
				t.Error("it could be moved while its address was on the way")
			}
		})
	}
}

// A replica that dies may leave the annotation on a claim.
func TestMove_OfAClaimWithoutAddress(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			paused := ten(ns, "paused")
			paused.Spec.ClusterName = ptr.To("c")
			suite.Create(t, admin, clusterNamed(ns, "c", true), paused, single(ns, "full"))
			k.gets(t, k.claim(ns, "first", "full", ""), "10.0.0.1")
			for _, pool := range []string{"paused", "full"} {
				left, others := k.claim(ns, "left-"+pool, pool, ""), k.claim(ns, "others-"+pool, pool, "")
				left.SetAnnotations(map[string]string{blockMove: "butler-ipam"})
				others.SetAnnotations(map[string]string{blockMove: ""})
				unassigned(t, others)
				unassigned(t, left)
				suite.AwaitObject(t, admin, left, func(c client.Object) string {
					if _, blocks := c.GetAnnotations()[blockMove]; !blocks && answer(c) == "" {
						return ""
					}
					return fmt.Sprint(c.GetAnnotations())
				})
				if _, blocks := stored(t, others).GetAnnotations()[blockMove]; !blocks {
					t.Errorf("%s: the annotation was another's", pool)
				}
			}
		})
	}
}

// Its own change must not bring it back at once: each round would be two writes of it,
// and two of the journal.
func TestPaused_ClusterCannotBeRead(t *testing.T) {
	t.Parallel()
	_, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true})
	ns := suite.CreateNamespace(t, c)
	p := single(ns, "pool")
	p.Spec.ClusterName = ptr.To("c")
	first, waits := ipClaims.claim(ns, "first", "pool", ""), ipClaims.claim(ns, "waits", "pool", "")
	suite.Create(t, c, clusterNamed(ns, "c", false), p, first, waits)
	suite.AwaitObject(t, c, waits, func(c client.Object) string {
		if _, failure := ipClaims.address(c); failure != "" {
			return ""
		}
		return "it does not say that its pool is full"
	})
	mayRead := func(may bool) {
		t.Helper()
		roles := &rbacv1.ClusterRoleList{}
		if err := c.List(t.Context(), roles); err != nil {
			t.Fatal(err)
		}
		for i := range roles.Items {
			for j, rule := range roles.Items[i].Rules {
				if slices.Equal(rule.Resources, []string{"clusters"}) && strings.HasPrefix(roles.Items[i].Name, "butler-ipam") {
					suite.Change(t, c, &roles.Items[i], func(r *rbacv1.ClusterRole) {
						if r.Rules[j].Verbs = []string{"list", "watch"}; may {
							r.Rules[j].Verbs = append(r.Rules[j].Verbs, "get")
						}
					})
				}
			}
		}
		suite.AwaitRight(t, c, authorizationv1.ResourceAttributes{Verb: "get", Group: clusterv1.GroupVersion.Group, Resource: "clusters"}, may)
	}
	mayRead(false)
	w, err := c.Watch(t.Context(), ipClaims.list(), client.InNamespace(ns), client.MatchingFields{"metadata.name": "waits"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	<-w.ResultChan() // as it is
	suite.Change(t, c, p, func(p *v1alpha1.IPPool) { p.Spec.Pools = append(p.Spec.Pools, between("10.0.0.2", "10.0.0.9")) })
	select {
	case <-w.ResultChan(): // the annotation is on it
	case <-time.After(suite.Soon):
		t.Fatal("nobody has tried to give it an address")
	}
	writes := 0
	for end := time.After(4 * time.Second); end != nil; {
		select {
		case <-w.ResultChan():
			writes++
		case <-end:
			end = nil
		}
	}
	if writes > 12 { // off, and on and off a few times
		t.Errorf("it was written to %d times in four seconds", writes)
	}
	mayRead(true)
	suite.AwaitObject(t, c, waits, func(c client.Object) string {
		if answer(c) == "10.0.0.2" {
			return ""
		}
		return fmt.Sprintf("it has %q", answer(c))
	})
}
