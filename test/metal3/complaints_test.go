package metal3

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// What users of the existing provider have complained about; the numbers are those of its issues.

// #1537: a claim that found its pool exhausted stayed failed, whatever was freed or added.
func TestExhaustionIsNotForEver(t *testing.T) {
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			pool := single(ns, "pool")
			suite.Create(t, admin, pool)
			k.gets(t, k.claim(ns, "first", "pool", ""), "10.0.0.1")
			var waiting []client.Object
			for i := range 3 {
				c := k.claim(ns, fmt.Sprintf("waits-%d", i), "pool", "")
				suite.Create(t, admin, c)
				k.fails(t, c, "Exhausted IP Pools")
				waiting = append(waiting, c)
			}
			suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Spec.Pools = []v1alpha1.Pool{between("10.0.0.1", "10.0.0.4")} })
			for _, c := range waiting {
				k.bound(t, c)
			}
		})
	}
}

// #988: one claim that cannot be served kept those behind it from being served.
func TestOneBadClaimStarvesNoOther(t *testing.T) {
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			bad := k.claim(ns, "a-bad-one", "pool", "10.9.9.9")
			good := k.claim(ns, "good", "pool", "")
			suite.Create(t, admin, bad, good)
			suite.Create(t, admin, ten(ns, "pool"))
			k.bound(t, good)
			k.gets(t, k.claim(ns, "later", "pool", ""), "10.0.0.2")
			if name, _ := k.address(stored(t, bad)); name != "" {
				t.Errorf("the bad one has %s", name)
			}
		})
	}
}

// #1529: claims of the two kinds got one address, since each was looked for among those of its own kind. Here they are four, from pools that overlap.
func TestClaimsOfAllKindsGetAddressesOfTheirOwn(t *testing.T) {
	const clients, each = 64, 3
	ns := suite.Namespace(t, admin)
	suite.Create(t, admin, ipPool(ns, "pool", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.4.0.0", "10.4.0.255")}}))
	suite.Create(t, admin, &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "net"}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.4.0.0/23", RoutingDomain: ns}})
	suite.Create(t, admin, &novaedgev1.ProxyIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{butlerv1.LabelRoutingDomain: ns}},
		Spec:       novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"10.4.0.128/25", "10.4.1.0/24"}, AutoAssign: true},
	})
	var (
		mu    sync.Mutex
		has   = map[string]string{} // address -> claim
		calls sync.WaitGroup
	)
	note := func(a, claim string) {
		mu.Lock()
		defer mu.Unlock()
		if other, taken := has[a]; taken {
			t.Errorf("%s went to %s and to %s", a, other, claim)
		}
		has[a] = claim
	}
	for i := range clients {
		calls.Go(func() {
			for j := range each {
				name := fmt.Sprintf("c-%d-%d", i, j)
				var c client.Object
				switch i % 5 {
				case 0:
					c = ipClaims.claim(ns, name, "pool", "")
				case 1:
					c = ipAddressClaims.claim(ns, name, "pool", "")
				case 2:
					c = &ipamv1.IPAddressClaim{ObjectMeta: asking(ns, name, ""), Spec: ipamv1.IPAddressClaimSpec{
						PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "net"},
					}}
				case 3:
					name = ns + "-" + name
					c = &novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: novaedgev1.ProxyVIPSpec{
						PoolRef: &novaedgev1.PoolReference{Name: ns}, Mode: novaedgev1.ModeBGP, Ports: []int32{80},
					}}
				default:
					count := int32(1)
					c = &butlerv1.IPAllocation{ObjectMeta: asking(ns, name, ""), Spec: butlerv1.IPAllocationSpec{
						PoolRef: butlerv1.LocalObjectReference{Name: "net"}, Type: butlerv1.TypeNodes, Count: &count,
						TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: ns, Name: "tenant"},
					}}
				}
				if err := admin.Create(t.Context(), c); err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				switch c := c.(type) {
				case *butlerv1.IPAllocation:
					note(c.Spec.PinnedRange.StartAddress, name)
				case *novaedgev1.ProxyVIP:
					t.Cleanup(func() { _ = admin.Delete(context.Background(), c) }) // or its pool cannot go
					note(strings.TrimSuffix(c.Spec.Address, "/32"), name)
				default:
					note(answer(c), name)
				}
			}
		})
	}
	calls.Wait()
	if len(has) != clients*each {
		t.Errorf("%d addresses, want %d", len(has), clients*each)
	}
}

// #694: a claim that was deleted within a second of its creation left its address behind for ever.
func TestCreateAndDeleteLeavesNothingBehind(t *testing.T) {
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			pool := ipPool(ns, "pool", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.0.0.1", "10.0.0.2")}})
			suite.Create(t, admin, pool)
			var all []client.Object
			for i := range 20 {
				c := k.claim(ns, fmt.Sprintf("brief-%d", i), "pool", "")
				suite.Create(t, admin, c)
				if err := admin.Delete(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				all = append(all, c)
			}
			for _, c := range all {
				suite.Gone(t, admin, c)
			}
			suite.Becomes(t, admin, pool, func(p *v1alpha1.IPPool) string {
				if len(p.Status.Indexes) == 0 && *p.Status.AvailableIPCount == 2 {
					return ""
				}
				return fmt.Sprintf("%+v", p.Status)
			})
			var left v1alpha1.IPAddressList
			if err := admin.List(t.Context(), &left, client.InNamespace(ns)); err != nil || len(left.Items) > 0 {
				t.Errorf("left behind: %v, %v", left.Items, err)
			}
		})
	}
}

// #1437: two pools with the same namePrefix and the same addresses had each other wait without a word.
func TestEqualPrefixesDoNotStandInEachOthersWay(t *testing.T) {
	ns := suite.Namespace(t, admin)
	for _, name := range []string{"a", "b"} {
		suite.Create(t, admin, ipPool(ns, name, v1alpha1.IPPoolSpec{NamePrefix: "same", Pools: []v1alpha1.Pool{between("10.0.0.1", "10.0.0.2")}}))
	}
	ipClaims.gets(t, ipClaims.claim(ns, "of-a", "a", ""), "10.0.0.1")
	ipClaims.gets(t, ipClaims.claim(ns, "of-b", "b", ""), "10.0.0.2")

	// Where the two are networks of their own, so that both have the address, the names of the objects differ.
	other := ipPool(ns, "c", v1alpha1.IPPoolSpec{NamePrefix: "same", Pools: []v1alpha1.Pool{between("10.0.0.1", "10.0.0.2")}})
	other.Labels[butlerv1.LabelRoutingDomain] = ns + "-2"
	suite.Create(t, admin, other)
	ipClaims.gets(t, ipClaims.claim(ns, "of-c", "c", ""), "10.0.0.1")
}

// #430, #431, #1250: an IPv6 network was walked through address by address, and a pin in another form than the canonical one did not hold.
func TestALargeIPv6NetworkCostsNothing(t *testing.T) {
	ns := suite.Namespace(t, admin)
	subnet := v1alpha1.Subnet("2001:db8::/64")
	suite.Create(t, admin, ipPool(ns, "pool", v1alpha1.IPPoolSpec{
		Pools: []v1alpha1.Pool{{Subnet: &subnet}}, PreAllocations: map[string]v1alpha1.IP{"pinned": "2001:0db8:0:0:ffff:ffff:ffff:fffe"},
	}))
	began := time.Now()
	ipClaims.gets(t, ipClaims.claim(ns, "pinned", "pool", ""), "2001:db8::ffff:ffff:ffff:fffe")
	ipClaims.gets(t, ipClaims.claim(ns, "asks", "pool", "2001:db8::8000:0:0:1"), "2001:db8::8000:0:0:1")
	ipAddressClaims.gets(t, ipAddressClaims.claim(ns, "any", "pool", ""), "2001:db8::1")
	suite.Refused(t, admin.Create(t.Context(), ipClaims.claim(ns, "outside", "pool", "2001:db8:1::1")), 422, "Exhausted IP Pools")
	if took := time.Since(began); took > suite.Soon {
		t.Errorf("it took %s", took)
	}
}

// in-cluster #332: an address went to another machine while the old one was still there.
func TestAReleasedAddressRestsWhereItsPoolSaysSo(t *testing.T) {
	ns := suite.Namespace(t, admin)
	pool := ten(ns, "pool")
	pool.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "1h"}
	suite.Create(t, admin, pool)
	c := ipClaims.claim(ns, "web", "pool", "")
	ipClaims.gets(t, c, "10.0.0.1")
	suite.Delete(t, admin, c)
	ipClaims.gets(t, ipClaims.claim(ns, "db", "pool", ""), "10.0.0.2")
	suite.Becomes(t, admin, pool, func(p *v1alpha1.IPPool) string {
		if strings.Contains(p.Annotations[butlerv1.AnnotationResting], "10.0.0.1") {
			return ""
		}
		return fmt.Sprintf("annotations: %v", p.Annotations)
	})
}

// Whatever had it. Of allocations the pool's status keeps a record, written before they go: unless somebody takes their finalizer off.
func TestAReleasedAddressRestsThroughARestart(t *testing.T) {
	box, c := suite.Own(t, sandbox.Options{Replicas: 1, ClusterAPI: true})
	ns := suite.Namespace(t, c)
	network := func(name, cidr string) *butlerv1.NetworkPool {
		return &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: butlerv1.NetworkPoolSpec{
			CIDR: cidr, ReuseDelay: &metav1.Duration{Duration: time.Hour},
		}}
	}
	ipPool := single(ns, "ip-pool")
	ipPool.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "1h"}
	kinds := map[string]struct {
		pool  client.Object
		claim func(name string) client.Object
		// refused tells whether a create that gives nothing is one that is refused.
		refused bool
	}{
		"IPClaim of an IPPool": {pool: ipPool, claim: func(name string) client.Object { return ipClaims.claim(ns, name, "ip-pool", "") }},
		"IPAddressClaim of a NetworkPool": {pool: network("net", "10.8.0.0/32"), claim: func(name string) client.Object {
			return &ipamv1.IPAddressClaim{ObjectMeta: asking(ns, name, ""), Spec: ipamv1.IPAddressClaimSpec{
				PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "net"},
			}}
		}},
		"IPAllocation without its finalizer": {pool: network("tenant", "10.9.0.0/32"), refused: true, claim: func(name string) client.Object {
			return &butlerv1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: butlerv1.IPAllocationSpec{
				PoolRef: butlerv1.LocalObjectReference{Name: "tenant"}, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: ns, Name: "web"},
				Type: butlerv1.TypeNodes, Count: ptr.To[int32](1),
			}}
		}},
	}
	for name, k := range kinds {
		first := k.claim("first")
		suite.Create(t, c, k.pool, first)
		if k.refused {
			suite.Change(t, c, first, func(o client.Object) { o.SetFinalizers([]string{"example.com/keeps"}) })
			if err := c.Delete(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			suite.Change(t, c, first, func(o client.Object) { o.SetFinalizers(nil) })
			suite.Becomes(t, c, k.pool, func(p client.Object) string {
				if p.GetAnnotations()[butlerv1.AnnotationResting] == "" {
					return name + ": no annotation"
				}
				return ""
			})
			continue
		}
		suite.Delete(t, c, first)
		suite.Gone(t, c, first)
		// Every manager may end in this moment.
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(k.pool), k.pool); err != nil || k.pool.GetAnnotations()[butlerv1.AnnotationResting] == "" {
			t.Errorf("%s: it is gone and its rest recorded nowhere: %v, %v", name, k.pool.GetAnnotations(), err)
		}
	}
	manager := box.Managers()[0]
	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context()), manager.Start(), manager.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	for name, k := range kinds {
		second := k.claim("second")
		err := c.Create(t.Context(), second)
		if k.refused {
			suite.Refused(t, err, 403, "1 address requested, 0 free")
		} else if err != nil || second.GetAnnotations()[v1alpha1.AnnotationIPAddress] != "" {
			t.Errorf("%s: %v, annotations %v", name, err, second.GetAnnotations())
		}
	}
}

// Else the record doubles with every event of the pool, its own writes among them, until no replica can read it in time.
func TestTheRestOfWhatTwoHadNamedIsRecordedOnce(t *testing.T) {
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			pool := ten(ns, "pool")
			pool.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "1h"}
			one, two := k.claim(ns, "one", "pool", "10.0.0.3"), k.claim(ns, "two", "pool", "10.0.0.3")
			suite.Create(t, admin, one, two, pool)
			var winner, loser client.Object
			suite.Eventually(t, suite.Soon, func(context.Context) error {
				has, failure := k.address(stored(t, one))
				hasToo, failureToo := k.address(stored(t, two))
				switch {
				case has != "" && failureToo != "":
					winner, loser = one, two
				case hasToo != "" && failure != "":
					winner, loser = two, one
				default:
					return fmt.Errorf("one has %q, %q, and two %q, %q", has, failure, hasToo, failureToo)
				}
				return nil
			})
			for _, c := range []client.Object{loser, winner} {
				suite.Delete(t, admin, c)
				suite.Gone(t, admin, c)
				for i := range 5 {
					suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Labels[fmt.Sprint("event-", i)] = c.GetName() })
				}
				k.gets(t, k.claim(ns, "after-"+c.GetName(), "pool", ""), map[string]string{loser.GetName(): "10.0.0.1", winner.GetName(): "10.0.0.2"}[c.GetName()])
				suite.Becomes(t, admin, pool, func(p *v1alpha1.IPPool) string {
					if n := strings.Count(p.Annotations[butlerv1.AnnotationResting], "10.0.0.3"); n > 1 || c == winner && n == 0 {
						return fmt.Sprintf("annotations: %v", p.Annotations)
					}
					return ""
				})
			}
			if err := admin.Create(t.Context(), k.claim(ns, "again", "pool", "10.0.0.3")); err == nil {
				t.Error("it does not rest")
			}
		})
	}
}

func TestReleasesWaitWhereAPoolHasNoRoomToRecordThem(t *testing.T) {
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			pool := ipPool(ns, "pool", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.0.0.0", "10.0.63.255")}, Prefix: 16})
			var resting []ledger.Cooling
			for i := range 8192 {
				a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
				resting = append(resting, ledger.Cooling{Range: allocator.Range{First: a, Last: a}, Since: time.Now(), Until: time.Now().Add(time.Hour)})
			}
			text, _ := fields.RestingText(pool, resting, 1)
			pool.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "1h", butlerv1.AnnotationResting: text}
			suite.Create(t, admin, pool)
			c := k.claim(ns, "web", "pool", "")
			k.gets(t, c, "10.0.32.0")
			k.bound(t, c)
			if err := admin.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			told(t, c, "ReleasesWait", "its release waits")
			if name, _ := k.address(stored(t, c)); name == "" {
				t.Error("its address is gone")
			}
			suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations[butlerv1.AnnotationReuseDelay] = "0s" })
			suite.Gone(t, admin, c)
			suite.Becomes(t, admin, pool, func(p *v1alpha1.IPPool) string { return p.Annotations[butlerv1.AnnotationResting] })
		})
	}
}

// Somebody has broken the record while nobody knew what was in it. What can be corrected is not thrown away.
func TestARecordThatCannotBeReadIsLeftToBeCorrected(t *testing.T) {
	ns := suite.Namespace(t, admin)
	pool := ten(ns, "pool")
	const broken = `[{"range":"10.0.0.1","claim":"ipclaims.ipam.metal3.io/` // and so on
	pool.Annotations = map[string]string{butlerv1.AnnotationResting: broken}
	suite.Create(t, admin, pool)
	told(t, pool, "RestsIllegible", "cannot be read", "correct it")
	suite.Becomes(t, admin, pool, func(p *v1alpha1.IPPool) string {
		if p.Status.LastUpdated == nil || p.Annotations[butlerv1.AnnotationResting] != broken {
			return fmt.Sprintf("annotations %v, status %+v", p.Annotations, p.Status)
		}
		return ""
	})
	suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) {
		p.Annotations[butlerv1.AnnotationResting] = broken + ns + `/web","uid":"there"}]`
	})
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		c := ipClaims.claim(ns, "try", "pool", "")
		if err := admin.Create(ctx, c, client.DryRunAll); err != nil {
			return err
		}
		if got := answer(c); got != "10.0.0.2" {
			return fmt.Errorf("another gets %s", got)
		}
		return nil
	})
	ipClaims.gets(t, ipClaims.claim(ns, "web", "pool", "10.0.0.1"), "10.0.0.1")
}

// Somebody's annotations fill the pool, so that nothing can be written into its own.
func TestAPoolThatCannotRecordWhatRestsKeepsItsStatus(t *testing.T) {
	ns := suite.Namespace(t, admin)
	pool := &butlerv1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "net", Annotations: map[string]string{"example.com/large": strings.Repeat("x", 256<<10-100)}},
		Spec:       butlerv1.NetworkPoolSpec{CIDR: "10.8.0.0/29", RoutingDomain: ns, ReuseDelay: &metav1.Duration{Duration: time.Hour}},
	}
	claim := func(name string) client.Object {
		return &ipamv1.IPAddressClaim{ObjectMeta: asking(ns, name, ""), Spec: ipamv1.IPAddressClaimSpec{
			PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "net"},
		}}
	}
	first := claim("first")
	suite.Create(t, admin, pool, first)
	ipAddressClaims.bound(t, first)
	suite.Delete(t, admin, first)
	suite.Gone(t, admin, first)
	suite.Create(t, admin, claim("second"), claim("third"))
	suite.Becomes(t, admin, pool, func(p *butlerv1.NetworkPool) string {
		if p.Annotations[butlerv1.AnnotationResting] != "" || p.Status.AllocationCount != 2 || p.Status.AvailableIPs != 5 {
			return fmt.Sprintf("status %+v", p.Status)
		}
		return ""
	})
}

// waitsForARest is a claim that waits for the one address of pool "one", which rests.
func waitsForARest(t *testing.T, ns string) client.Object {
	t.Helper()
	first, second := ipClaims.claim(ns, "first", "one", ""), ipClaims.claim(ns, "second", "one", "")
	ipClaims.gets(t, first, "10.0.0.1")
	suite.Delete(t, admin, first)
	suite.Create(t, admin, second)
	ipClaims.fails(t, second, "Exhausted IP Pools")
	return second
}

func TestARestEndsEarlierWhereItsPoolsDelayIsShortened(t *testing.T) {
	ns := suite.Namespace(t, admin)
	pool := single(ns, "one")
	pool.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "1 hour"}
	const rule = `metadata.annotations[butler.butlerlabs.dev/reuse-delay]: Invalid value: "1 hour": must be a duration from 0s to 720h, such as 10m`
	suite.Refused(t, admin.Create(t.Context(), pool), 422, rule)
	pool.Annotations[butlerv1.AnnotationReuseDelay] = "1h"
	suite.Create(t, admin, pool)
	second := waitsForARest(t, ns)
	delay := func(text string) func(*v1alpha1.IPPool) {
		return func(p *v1alpha1.IPPool) { p.Annotations[butlerv1.AnnotationReuseDelay] = text }
	}
	suite.Refused(t, suite.TryChange(t, admin, pool, delay("1 hour")), 422, rule)
	suite.Change(t, admin, pool, delay("1s"))
	ipClaims.bound(t, second)
}

func TestARestEndsWhenItsTimeHasCome(t *testing.T) {
	ns := suite.Namespace(t, admin)
	pool := single(ns, "one")
	pool.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "3s"}
	suite.Create(t, admin, pool)
	second := waitsForARest(t, ns)
	ipClaims.bound(t, second)
	suite.Becomes(t, admin, pool, func(p *v1alpha1.IPPool) string {
		if resting := p.Annotations[butlerv1.AnnotationResting]; resting != "" || p.Status.Indexes["second"] != "10.0.0.1" {
			return fmt.Sprintf("resting %q, indexes %v", resting, p.Status.Indexes)
		}
		return ""
	})
}

// The existing provider reads the annotation ipAddress once: what somebody wrote into it later means nothing there.
func TestTakeOverKeepsTheAddressThatIsInUseWhateverTheAnnotationSays(t *testing.T) {
	box, c := suite.Own(t, sandbox.Options{ClusterAPI: true})
	ns := suite.Namespace(t, c)
	pool := ten(ns, "pool")
	suite.Create(t, c, pool)
	edited := ipClaims.claim(ns, "edited", "pool", "10.0.0.7").(*v1alpha1.IPClaim)
	kept := ipClaims.claim(ns, "kept", "pool", "10.0.0.8").(*v1alpha1.IPClaim)
	for claim, has := range map[*v1alpha1.IPClaim]string{edited: "10.0.0.5", kept: "10.0.0.8"} {
		claim.Finalizers = []string{v1alpha1.FinalizerIPClaim}
		o := ipClaims.holds(ns, "pool-"+strings.ReplaceAll(has, ".", "-"), "pool", claim.Name, has)
		suite.Create(t, c, claim, o)
		claim.Status.Address = &corev1.ObjectReference{Name: o.GetName(), Namespace: ns}
		if err := c.Status().Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := box.AddManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := box.InstallWebhooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	for claim, has := range map[*v1alpha1.IPClaim]string{edited: "10.0.0.5", kept: "10.0.0.8"} {
		suite.Becomes(t, c, claim, func(c *v1alpha1.IPClaim) string {
			if c.Annotations[v1alpha1.AnnotationIPAddress] != has || c.Annotations[butlerv1.AnnotationOrigin] != butlerv1.OriginAdopted {
				return fmt.Sprintf("annotations %v", c.Annotations)
			}
			return ""
		})
	}
	suite.Becomes(t, c, pool, func(p *v1alpha1.IPPool) string {
		if len(p.Status.Indexes) != 2 || p.Status.Indexes["edited"] != "10.0.0.5" || p.Status.Indexes["kept"] != "10.0.0.8" {
			return fmt.Sprintf("indexes %v", p.Status.Indexes)
		}
		return ""
	})
	var addresses v1alpha1.IPAddressList
	if err := c.List(t.Context(), &addresses, client.InNamespace(ns)); err != nil || len(addresses.Items) != 2 {
		t.Errorf("%d addresses, %v", len(addresses.Items), err)
	}
}

// Taking over from the existing provider: its objects are in place as it left them, it is stopped and we are there. Nothing changes that has an
// address; what has none gets one, and what was going goes.
func TestTakeOverFromTheExistingProvider(t *testing.T) {
	const bound, exhausted, leaving = 170, 15, 15
	ns := suite.Namespace(t, admin)
	pool := ipPool(ns, "pool", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.5.0.1", "10.5.0.185")}, Prefix: 24})
	pool.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""} // nobody works on it while it is being put there
	suite.Create(t, admin, pool)
	want := map[string]v1alpha1.IP{}
	var all, going []client.Object
	for i := range bound + leaving {
		// In no order of addresses, as the existing provider has none.
		name, a := fmt.Sprintf("claim-%d", i), v1alpha1.IP(fmt.Sprintf("10.5.0.%d", 1+i*7%185))
		c := ipClaims.claim(ns, name, "pool", "").(*v1alpha1.IPClaim)
		c.Finalizers = []string{v1alpha1.FinalizerIPClaim}
		suite.Create(t, admin, c)
		o := ipClaims.holds(ns, "pool-"+strings.ReplaceAll(string(a), ".", "-"), "pool", name, string(a)).(*v1alpha1.IPAddress)
		o.Finalizers = []string{v1alpha1.FinalizerIPAddress}
		suite.Create(t, admin, o)
		c.Status.Address = &corev1.ObjectReference{Name: o.Name, Namespace: ns}
		if err := admin.Status().Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if i >= bound {
			if err := admin.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			going = append(going, c)
			continue
		}
		want[name] = a
		all = append(all, c)
	}
	for i := range exhausted {
		c := ipClaims.claim(ns, fmt.Sprintf("late-%d", i), "pool", "").(*v1alpha1.IPClaim)
		suite.Create(t, admin, c)
		text := "Exhausted IP Pools"
		c.Status.ErrorMessage = &text
		if err := admin.Status().Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
	for _, c := range going {
		suite.Gone(t, admin, c)
	}
	for _, c := range all {
		got := ipClaims.bound(t, c)
		if had, known := want[c.GetName()]; known && got.Address != had {
			t.Errorf("%s had %s and has %s", c.GetName(), had, got.Address)
		}
	}
	suite.Becomes(t, admin, pool, func(p *v1alpha1.IPPool) string {
		if len(p.Status.Indexes) == bound+exhausted && *p.Status.AvailableIPCount == 0 {
			return ""
		}
		return fmt.Sprintf("%d indexes, %d free", len(p.Status.Indexes), *p.Status.AvailableIPCount)
	})
}
