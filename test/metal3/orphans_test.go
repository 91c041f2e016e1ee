package metal3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// marked waits until an address object has the owners and the finalizer of one that the
// manager makes for this claim.
func (k claimKind) marked(t *testing.T, o, claim client.Object) {
	t.Helper()
	finalizer := v1alpha1.FinalizerIPAddress
	if k.name == ipAddressClaims.name {
		finalizer = v1alpha1.FinalizerClusterAPIAddress
	}
	suite.AwaitObject(t, admin, o, func(o client.Object) string {
		var owners []string
		for _, r := range o.GetOwnerReferences() {
			owners = append(owners, r.Kind+" "+string(r.UID))
		}
		if len(owners) == 2 && slices.Contains(owners, k.name+" "+string(claim.GetUID())) && slices.Equal(o.GetFinalizers(), []string{finalizer}) {
			return ""
		}
		return fmt.Sprintf("owners %q, finalizers %q", owners, o.GetFinalizers())
	})
}

func TestAddressObject_GetsOwnersAndFinalizer(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		run := func(name string, body func(t *testing.T, ns string)) {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				ns := suite.CreateNamespace(t, admin)
				suite.Create(t, admin, ten(ns, "pool"))
				body(t, ns)
			})
		}
		goes := func(t *testing.T, c, o client.Object) {
			t.Helper()
			suite.Delete(t, admin, c)
			suite.AwaitGone(t, admin, o)
		}
		run("made by hand before the claim", func(t *testing.T, ns string) {
			o, c := k.holds(ns, "manual", "pool", "web", "10.0.0.8"), k.claim(ns, "web", "pool", "")
			suite.Create(t, admin, o)
			k.wouldGet(t, c, "10.0.0.8")
			k.gets(t, c, "10.0.0.8")
			k.marked(t, o, c)
			goes(t, c, o)
		})
		run("made by hand for a claim that waits", func(t *testing.T, ns string) {
			c, o := k.claim(ns, "web", "later", ""), k.holds(ns, "manual", "later", "web", "10.0.0.8")
			// The pool must not be observed before the address object. An address object
			// that is created after it, of a pool that exists, shows that it is.
			suite.Create(t, admin, c, o, k.holds(ns, "after", "pool", "other", "10.0.0.9"))
			suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
				if admin.Create(ctx, k.claim(ns, "probe", "pool", "10.0.0.9"), client.DryRunAll) == nil {
					return errors.New("10.0.0.9 is free: the address objects are not observed yet")
				}
				return nil
			})
			suite.Create(t, admin, ten(ns, "later"))
			if got := k.bound(t, c); got.Address != "10.0.0.8" {
				t.Errorf("it has %s", got.Address)
			}
			k.marked(t, o, c)
			goes(t, c, o)
		})
		for _, order := range []string{"objects first", "claims first"} {
			run("restored without, "+order, func(t *testing.T, ns string) {
				c := k.claim(ns, "web", "pool", "")
				k.gets(t, c, "10.0.0.1")
				name, _ := k.address(stored(t, c))
				again, o := k.restorable(t, c, "pool"), k.holds(ns, name, "pool", "web", "10.0.0.1")
				again.SetFinalizers(nil)
				goes(t, c, k.holds(ns, name, "pool", "web", "10.0.0.1"))
				restored := []client.Object{o, again}
				if order == "claims first" { // then the manager may have made the object
					slices.Reverse(restored)
				}
				for _, r := range restored {
					if err := admin.Create(t.Context(), r); err != nil && (r != o || order == "objects first") {
						t.Fatal(err)
					}
				}
				k.bound(t, again)
				k.marked(t, o, again)
			})
		}
		run("the finalizer is taken off", func(t *testing.T, ns string) {
			c := k.claim(ns, "web", "pool", "")
			k.gets(t, c, "10.0.0.1")
			name, _ := k.address(stored(t, c))
			o := k.holds(ns, name, "pool", "web", "10.0.0.1")
			suite.Change(t, admin, o, func(o client.Object) { o.SetFinalizers(nil) })
			k.marked(t, o, c)
		})
		run("owners and finalizer are taken off", func(t *testing.T, ns string) {
			c := k.claim(ns, "web", "pool", "")
			k.gets(t, c, "10.0.0.1")
			name, _ := k.address(stored(t, c))
			o := k.holds(ns, name, "pool", "web", "10.0.0.1")
			suite.Change(t, admin, o, func(o client.Object) { o.SetFinalizers(nil); o.SetOwnerReferences(nil) })
			k.marked(t, o, c)
		})
	}
}

// A restore creates each claim right after its address object, and the event of the
// address object takes 200 ms to the manager.
func TestAddressObject_ClaimRightAfterIt(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true, Links: true})
	for _, k := range bothKinds {
		ns := suite.CreateNamespace(t, c)
		suite.Create(t, c, single(ns, "pool"))
		o, claim := k.holds(ns, "pool-10-0-0-1", "pool", "web", "10.0.0.1"), k.claim(ns, "web", "pool", "10.0.0.1")
		claim.GetAnnotations()[butlerv1.AnnotationOrigin] = butlerv1.OriginAuto
		box.Managers()[0].APIServer.Set("", sandbox.Condition{Latency: 200 * time.Millisecond})
		suite.Create(t, c, o, claim)
		box.Managers()[0].APIServer.Set("", sandbox.Condition{})
		suite.AwaitObject(t, c, claim, func(c client.Object) string {
			if name, failure := k.address(c); name != "pool-10-0-0-1" {
				return fmt.Sprintf("address object %q, failure %q", name, failure)
			}
			return ""
		})
	}
}

// loses ends a claim without its address object: its finalizer is taken off before.
func loses(t *testing.T, c client.Client, claim client.Object) {
	t.Helper()
	suite.Change(t, c, claim, func(c client.Object) { c.SetFinalizers([]string{"example.com/test"}) })
	if err := c.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	suite.Change(t, c, claim, func(c client.Object) { c.SetFinalizers(nil) })
	suite.AwaitGone(t, c, claim)
}

func TestAddressObject_WithoutItsClaimIsDeleted(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true, ManagerArgs: []string{"--shutdown-delay=0s", "--orphan-grace=3s"}})
	manager, ns := box.Managers()[0], suite.CreateNamespace(t, c)
	red, blue := ten(ns, "red"), ten(ns, "blue")
	blue.Labels[butlerv1.LabelRoutingDomain] = ns + "-blue"
	suite.Create(t, c, red, blue)

	type left struct{ was, object, next client.Object }
	all := map[string]left{}
	var nobody []client.Object // made by hand for no claim, without marks
	for i, k := range bothKinds {
		kind := strings.ToLower(k.name[:3])
		bind := func(name string) (claim client.Object, o client.Object) {
			claim = k.claim(ns, name, "red", "")
			suite.Create(t, c, claim)
			suite.AwaitObject(t, c, claim, func(o client.Object) string {
				if name, failure := k.address(o); name == "" {
					return "no address: " + failure
				}
				return ""
			})
			named, _ := k.address(claim)
			o = k.holds(ns, named, "red", "", "")
			return claim, suite.Read(t, c, o)
		}
		was, o := bind("pool-" + kind)
		all[k.name+"/back with another pool"] = left{was, o, k.claim(ns, was.GetName(), "blue", "")}
		was, o = bind("address-" + kind)
		all[k.name+"/back with another address"] = left{was, o, k.claim(ns, was.GetName(), "red", []string{"10.0.0.10", "10.0.0.7"}[i])}
		was, o = bind("gone-" + kind)
		all[k.name+"/gone"] = left{was, o, nil}
		free := k.holds(ns, "free-"+kind, "red", "nobody", []string{"10.0.0.9", "10.0.0.8"}[i])
		suite.Create(t, c, free)
		nobody = append(nobody, free)
	}
	was, o := all[ipAddressClaims.name+"/gone"].was, all[ipAddressClaims.name+"/gone"].object
	foreign := ipAddressClaims.claim(ns, was.GetName(), "red", "").(*ipamv1.IPAddressClaim)
	foreign.Spec.PoolRef.Kind = "InClusterIPPool"
	all[ipAddressClaims.name+"/back with the pool of another provider"] = left{was, o, foreign}
	delete(all, ipAddressClaims.name+"/gone")

	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		loses(t, c, l.was)
	}
	if err := errors.Join(manager.Start(), manager.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	for name, l := range all {
		if l.next == nil {
			continue
		}
		if err := c.Create(t.Context(), l.next); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, l := range all {
		t.Run(name, func(t *testing.T) { suite.AwaitGone(t, c, l.object) })
	}
	for _, o := range nobody {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.GetDeletionTimestamp() != nil {
			t.Errorf("%s, which nobody marked, is gone: %v", o.GetName(), err)
		}
	}
}
