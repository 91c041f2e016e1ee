package metal3

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// pin has a pool keep these addresses.
func pin(t *testing.T, p *v1alpha1.IPPool, pins map[string]v1alpha1.IP) {
	t.Helper()
	suite.Change(t, admin, p, func(p *v1alpha1.IPPool) { p.Spec.PreAllocations = pins })
}

// restorable is a claim as clusterctl or a backup brings it back: what the API server
// sets is gone, and its status.
func (k claimKind) restorable(t *testing.T, c client.Object, pool string) client.Object {
	t.Helper()
	was := stored(t, c)
	again := k.claim(c.GetNamespace(), c.GetName(), pool, "")
	again.SetLabels(was.GetLabels())
	again.SetAnnotations(was.GetAnnotations())
	again.SetFinalizers(was.GetFinalizers())
	again.SetGenerateName(was.GetGenerateName())
	return again
}

// Pins may land on what is owned, so clusterctl moves claims whose pool pins something
// else by now.
func TestPreAllocation_RestoredClaimKeepsItsAddress(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		for name, tc := range map[string]struct {
			generateName bool
			pins         map[string]v1alpha1.IP
		}{
			"another for the claim":       {false, map[string]v1alpha1.IP{"web": "10.0.0.9"}},
			"another for the claim named": {true, map[string]v1alpha1.IP{"web": "10.0.0.9"}},
			"the address for another":     {false, map[string]v1alpha1.IP{"other": "10.0.0.1"}},
			"both":                        {false, map[string]v1alpha1.IP{"web": "10.0.0.9", "other": "10.0.0.1"}},
			"the address for the claim":   {false, map[string]v1alpha1.IP{"web": "10.0.0.1"}},
		} {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				ns := suite.CreateNamespace(t, admin)
				pool := ten(ns, "pool")
				suite.Create(t, admin, pool)
				c := k.claim(ns, "web", "pool", "")
				if tc.generateName {
					c.SetGenerateName("w")
				}
				k.gets(t, c, "10.0.0.1")
				pin(t, pool, tc.pins)
				again := k.restorable(t, c, "pool")
				suite.Delete(t, admin, c)
				k.gets(t, again, "10.0.0.1")
			})
		}
	}
}

// Who is kept out of an address does not keep others out of it.
func TestPreAllocation_OfAnotherBeforeThePool(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			thief := k.claim(ns, "thief", "pool", "10.0.0.9")
			suite.Create(t, admin, thief)
			pool := ten(ns, "pool")
			pool.Spec.PreAllocations = map[string]v1alpha1.IP{"host": "10.0.0.9"}
			suite.Create(t, admin, pool)
			suite.AwaitObject(t, admin, thief, func(c client.Object) string {
				if name, failure := k.address(c); name != "" || failure == "" {
					return fmt.Sprintf("address %q, failure %q", name, failure)
				}
				return ""
			})
			host := k.claim(ns, "host", "pool", "")
			k.gets(t, host, "10.0.0.9")
			if got := k.bound(t, host); got.Address != "10.0.0.9" {
				t.Errorf("it has %s", got.Address)
			}
		})
	}
}

// A backup is restored kind by kind: claims come before pools.
func TestPreAllocation_RestoredClaimBeforeItsPool(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			pool.Spec.PreAllocations = map[string]v1alpha1.IP{"web": "10.0.0.8", "db": "10.0.0.7", "other": "10.0.0.9"}
			suite.Create(t, admin, pool)
			c := k.claim(ns, "web", "pool", "")
			k.gets(t, c, "10.0.0.8")
			again := k.restorable(t, c, "pool")
			suite.Delete(t, admin, c)
			suite.AwaitGone(t, admin, c)
			suite.Delete(t, admin, pool)
			suite.AwaitGone(t, admin, pool)

			thief := k.claim(ns, "thief", "pool", "10.0.0.9")
			db := k.claim(ns, "db", "pool", "10.0.0.7")
			suite.Create(t, admin, k.holds(ns, "of-db", "pool", "db", "10.0.0.7"), db, again, thief) // its address object may come back as well
			pool.SetResourceVersion("")
			suite.Create(t, admin, pool)
			if got := k.bound(t, again); got.Address != "10.0.0.8" {
				t.Errorf("it has %s", got.Address)
			}
			if got := k.bound(t, db); got.Address != "10.0.0.7" {
				t.Errorf("the other has %s", got.Address)
			}
			suite.AwaitObject(t, admin, thief, func(c client.Object) string {
				name, failure := k.address(c)
				if name == "" && failure == "Requested IP not available" {
					return ""
				}
				return fmt.Sprintf("address %q, failure %q", name, failure)
			})
		})
	}
}

func TestPreAllocation_DeniesOtherClaims(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			pool.Spec.PreAllocations = map[string]v1alpha1.IP{"other": "10.0.0.1", "web": "10.0.0.9"}
			suite.Create(t, admin, pool)
			suite.RequireDenied(t, admin.Create(t.Context(), k.claim(ns, "db", "pool", "10.0.0.1")), 422, "Requested IP not available")
			suite.RequireDenied(t, admin.Create(t.Context(), k.claim(ns, "web", "pool", "10.0.0.1")), 422, "PreAllocation and requested ip address are conflicting")
		})
	}
}

// Whoever names no address is stored with one or without: also where it is one very
// address that is to come.
func TestPreAllocation_ClaimWaitsForItsOwner(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			pool.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "3s"}
			suite.Create(t, admin, pool)
			has := k.claim(ns, "db", "pool", "10.0.0.4")
			k.gets(t, has, "10.0.0.4")
			pin(t, pool, map[string]v1alpha1.IP{"web": "10.0.0.4"})
			waits := k.claim(ns, "web", "pool", "")
			suite.Create(t, admin, waits)
			k.fails(t, waits, "Requested IP not available")
			suite.RequireDenied(t, admin.Create(t.Context(), k.claim(ns, "web-0", "pool", "10.0.0.4")), 422, "Requested IP not available")
			k.gets(t, k.claim(ns, "other", "pool", ""), "10.0.0.1") // which need not wait as well
			suite.Delete(t, admin, has)
			if got := k.bound(t, waits); got.Address != "10.0.0.4" {
				t.Errorf("it has %s", got.Address)
			}
		})
	}
}

// An answer does not take from others what they have.
func TestPreAllocation_RestoredClaimAfterReallocation(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			suite.Create(t, admin, pool)
			c := k.claim(ns, "web", "pool", "")
			k.gets(t, c, "10.0.0.1")
			pin(t, pool, map[string]v1alpha1.IP{"other": "10.0.0.1"})
			again := k.restorable(t, c, "pool")
			suite.Delete(t, admin, c)
			other := k.claim(ns, "other", "pool", "")
			k.wouldGet(t, other, "10.0.0.1") // the manager observes the deletion later than the test
			k.gets(t, other, "10.0.0.1")
			suite.RequireDenied(t, admin.Create(t.Context(), again), 403, "Requested IP not available", "other")
		})
	}
}

// What clusterctl brings of claims from the existing provider, which have no annotation.
func TestPreAllocation_AddressObjectOfAnother(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			pool.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""}
			pool.Spec.PreAllocations = map[string]v1alpha1.IP{"other": "10.0.0.1", "web": "10.0.0.9"}
			suite.Create(t, admin, pool)
			c := k.claim(ns, "web", "pool", "")
			unassigned(t, c)
			suite.Create(t, admin, k.holds(ns, "pool-10-0-0-1", "pool", "web", "10.0.0.1"))
			suite.RequireDenied(t, admin.Create(t.Context(), k.holds(ns, "thief", "pool", "other", "10.0.0.1")), 403, "Requested IP not available")
			suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
			if got := k.bound(t, c); got.Address != "10.0.0.1" {
				t.Errorf("the claim has %s", got.Address)
			}
			if name, _ := k.address(stored(t, c)); name != "pool-10-0-0-1" {
				t.Errorf("the claim names %s", name)
			}
			waits := k.claim(ns, "other", "pool", "")
			suite.Create(t, admin, waits)
			k.fails(t, waits, "Requested IP not available")
		})
	}
}
