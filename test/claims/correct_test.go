package claims

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// correctClaim updates a stored claim, and checks that the response contains the address
// want (any address if want is "") and that the claim is bound within 5 s.
func correctClaim(t *testing.T, k suite.Kind, claim client.Object, change func(client.Object), want string) {
	t.Helper()
	began := time.Now()
	suite.Change(t, admin, claim, change)
	got := k.Address(claim)
	if got == "" || want != "" && got != want {
		t.Errorf("the response to the update has address %q, want %q", got, want)
	}
	k.Binds(t, admin, claim, got)
	if took := time.Since(began); took > 20*time.Second { // without an event a claim waits for up to 30 s
		t.Errorf("the claim is bound after %s", took)
	}
}

// requestAddress returns an update that requests an address; any if address is "".
func requestAddress(k suite.Kind, address string) func(client.Object) {
	return func(o client.Object) { k.Request(o, address) }
}

// A claim is stored before its pool, with an address that the pool does not offer.
func TestCorrection_OutsideThePool(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		for _, to := range []string{"10.0.0.9", ""} {
			claim, pool := k.Claim(ns, "c", "10.9.9.9"), k.Pool(ns, "10.0.0.1", "10.0.0.20")
			suite.Create(t, admin, claim, pool)
			k.Fails(t, admin, claim, "is outside the pool")
			for _, part := range []string{pool.GetName(), "10.9.9.9"} {
				k.Fails(t, admin, claim, part)
			}
			if text := k.Failure(claim); strings.Contains(strings.ToLower(text), "exhausted") {
				t.Errorf("the status says %q, but the pool has free addresses", text)
			}
			correctClaim(t, k, claim, requestAddress(k, to), to)
			suite.Delete(t, admin, claim)
			k.Counts(t, admin, pool, 0)
			suite.Delete(t, admin, pool)
		}
	})
}

// An update to another address outside the pool is denied, and the claim keeps its
// request.
func TestCorrection_ToAnotherAddressOutsideThePool(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		claim := k.Claim(ns, "c", "10.9.9.9")
		suite.CreateForTest(t, admin, claim, k.Pool(ns, "10.0.0.1", "10.0.0.20"))
		k.Fails(t, admin, claim, "is outside the pool")
		if err := suite.TryChange(t, admin, claim, requestAddress(k, "10.9.9.8")); err == nil || !strings.Contains(err.Error(), "10.9.9.8") {
			t.Errorf("another address outside: %v", err)
		}
		correctClaim(t, k, claim, requestAddress(k, ""), "")
		was := k.Address(claim)
		suite.Change(t, admin, claim, requestAddress(k, "")) // the allocated address stays
		if now := k.Address(claim); now != was {
			t.Errorf("an update that omits the allocated address %s leaves %q", was, now)
		}
	})
}

// The pool will never exist, because its name in the claim is mistyped.
func TestCorrection_OfAMistypedPool(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		pool := k.Pool(ns, "10.0.0.1", "10.0.0.20")
		suite.CreateForTest(t, admin, pool)
		repool := func(o client.Object) { k.Repool(o, pool.GetName()) }
		for _, address := range []string{"", "10.0.0.9"} {
			claim := k.Claim(ns, "c", address)
			k.Repool(claim, ns+"-typo")
			suite.Create(t, admin, claim)
			if k.Name == "IPClaim" { // the pool of an IPClaim is immutable in Metal3's CRD: the message names the remedy
				suite.RequireDenied(t, suite.TryChange(t, admin, claim, repool), 422, "create another IPClaim in the other pool and delete this one")
			} else {
				k.Fails(t, admin, claim, ns+"-typo does not exist")
				correctClaim(t, k, claim, repool, address)
			}
			suite.Delete(t, admin, claim)
		}
	})
}

// Both claims are stored before their pool; the older one wins.
func TestCorrection_OfTheLoserOfAConflict(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		for _, to := range []string{"10.0.0.8", ""} {
			winner, loser, pool := k.Claim(ns, "winner", "10.0.0.9"), k.Claim(ns, "c", "10.0.0.9"), k.Pool(ns, "10.0.0.1", "10.0.0.20")
			suite.Create(t, admin, winner)
			suite.AwaitObject(t, admin, winner, func(o client.Object) string { // the winner must be older by at least 1 s
				if time.Since(o.GetCreationTimestamp().Time) < 1100*time.Millisecond {
					return "the claim is too young"
				}
				return ""
			})
			suite.Create(t, admin, loser, pool)
			k.Binds(t, admin, winner, "10.0.0.9")
			for _, part := range []string{"10.0.0.9", "is owned by", winner.GetName()} {
				k.Fails(t, admin, loser, part)
			}
			correctClaim(t, k, loser, requestAddress(k, to), to)
			if got := suite.Read(t, admin, winner); !k.Bound(got) || k.Address(got) != "10.0.0.9" {
				t.Errorf("the winner has lost its address: %+v", got)
			}
			suite.Delete(t, admin, winner)
			suite.Delete(t, admin, loser)
			k.Counts(t, admin, pool, 0)
			suite.Delete(t, admin, pool)
		}
	})
}

// A controller corrects a claim some milliseconds after its create, before the first
// status is written: whether a request was met does not depend on it.
func TestCorrection_BeforeTheFirstStatus(t *testing.T) {
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		pool := k.Pool(ns, "10.0.0.1", "10.0.0.20")
		var served []client.Object
		for name, change := range map[string]struct {
			of   func(client.Object)
			want string
		}{
			"removed": {requestAddress(k, ""), ""},
			"changed": {requestAddress(k, "10.0.0.7"), "10.0.0.7"},
			"repooled": {func(o client.Object) {
				if k.Name != "IPClaim" { // its pool is immutable
					k.Repool(o, ns+"-other")
				}
				k.Request(o, "10.0.0.8")
			}, "10.0.0.8"},
		} {
			claim := k.Claim(ns, name, "10.9.9.9")
			suite.CreateForTest(t, admin, claim)
			before := claim.DeepCopyObject().(client.Object)
			change.of(claim)
			if err := admin.Patch(t.Context(), claim, client.MergeFrom(before)); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if got := k.Address(claim); got != change.want {
				t.Errorf("%s: the response has address %q, want %q", name, got, change.want)
			}
			if name != "repooled" {
				served = append(served, claim)
			}
		}
		suite.CreateForTest(t, admin, pool)
		for _, claim := range served {
			k.Binds(t, admin, claim, "")
		}
	})
}

// The count beside a pinned range may be corrected to the size of the range before the
// first status is written, too.
func TestCorrection_OfACountBeforeTheFirstStatus(t *testing.T) {
	t.Parallel()
	ns, k := suite.CreateNamespace(t, admin), suite.Kinds[0]
	suite.Create(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.20"))
	for name, pool := range map[string]string{"granted": "pool", "pending": "no-such-pool"} {
		claim := k.Claim(ns, name, "").(*butlerv1.IPAllocation)
		claim.Spec.PoolRef.Name, claim.Spec.Count = pool, ptr.To[int32](4)
		claim.Spec.PinnedRange = &butlerv1.PinnedIPRange{StartAddress: "10.0.0.1", EndAddress: "10.0.0.8"}
		suite.Create(t, admin, claim)
		before := claim.DeepCopy()
		claim.Spec.Count = ptr.To[int32](8)
		if err := admin.Patch(t.Context(), claim, client.MergeFrom(before)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A count that differs from the size of the pinned range is ignored. The count may be
// corrected to that size, also after the allocation.
func TestCorrection_OfACount(t *testing.T) {
	t.Parallel()
	ns, k := suite.CreateNamespace(t, admin), suite.Kinds[0]
	claim := k.Claim(ns, "c", "10.0.0.9").(*butlerv1.IPAllocation)
	claim.Spec.Count = ptr.To[int32](5)
	suite.Create(t, admin, k.Pool(ns, "10.0.0.1", "10.0.0.20"), claim)
	k.Binds(t, admin, claim, "10.0.0.9")
	count := func(n *int32) error {
		return suite.TryChange(t, admin, claim, func(a *butlerv1.IPAllocation) { a.Spec.Count = n })
	}
	suite.RequireDenied(t, count(ptr.To[int32](4)), 422, "spec.count", "cannot be changed while addresses are owned")
	for _, n := range []*int32{ptr.To[int32](1), nil} {
		if err := count(n); err != nil {
			t.Error(err)
		}
		if got := suite.Read(t, admin, claim).Spec.Count; ptr.Deref(got, 0) != 1 {
			t.Errorf("count is %v, want 1", got)
		}
	}
	suite.RequireDenied(t, count(ptr.To[int32](5)), 422, "spec.count", "cannot be changed while addresses are owned")
}

// The other fields of an allocation without addresses may change too, and the labels that
// the allocator derives from the fields follow.
func TestCorrection_OfOtherFields(t *testing.T) {
	t.Parallel()
	ns, k := suite.CreateNamespace(t, admin), suite.Kinds[0]
	claim := k.Claim(ns, "c", "10.9.9.9").(*butlerv1.IPAllocation)
	suite.Create(t, admin, claim, k.Pool(ns, "10.0.0.1", "10.0.0.20"))
	k.Fails(t, admin, claim, "is outside the pool")
	suite.Change(t, admin, claim, func(a *butlerv1.IPAllocation) {
		a.Spec.Type, a.Spec.Count = butlerv1.TypeLoadBalancer, ptr.To[int32](3)
		a.Spec.TenantClusterRef = butlerv1.NamespacedObjectReference{Name: "other", Namespace: "else"}
	})
	for label, want := range map[string]string{
		butlerv1.LabelAllocationType: "loadbalancer", butlerv1.LabelTenant: "other", butlerv1.LabelTeam: "else", butlerv1.LabelNetworkPool: "pool",
	} {
		if got := claim.Labels[label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	correctClaim(t, k, claim, func(o client.Object) { o.(*butlerv1.IPAllocation).Spec.PinnedRange = nil }, "")
	if n := claim.Status.AllocatedCount; n != 3 {
		t.Errorf("%d addresses, want the 3 of the corrected count", n)
	}
}
