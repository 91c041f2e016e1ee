package metal3

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// What users of the existing provider have complained about; the numbers are those of its
// issues.

// #988: one claim that cannot be served kept those behind it from being served.
func TestClaim_InvalidOneDelaysNoOther(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
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

// #1437: two pools with the same namePrefix and the same addresses had each other wait without a word.
func TestIPPool_EqualNamePrefixes(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	for _, name := range []string{"a", "b"} {
		suite.Create(t, admin, ipPool(ns, name, v1alpha1.IPPoolSpec{NamePrefix: "same", Pools: []v1alpha1.Pool{between("10.0.0.1", "10.0.0.2")}}))
	}
	ipClaims.gets(t, ipClaims.claim(ns, "of-a", "a", ""), "10.0.0.1")
	ipClaims.gets(t, ipClaims.claim(ns, "of-b", "b", ""), "10.0.0.2")

	// Where the two are networks of their own, so that both have the address, the names
	// of the objects differ.
	other := ipPool(ns, "c", v1alpha1.IPPoolSpec{NamePrefix: "same", Pools: []v1alpha1.Pool{between("10.0.0.1", "10.0.0.2")}})
	other.Labels[butlerv1.LabelRoutingDomain] = ns + "-2"
	suite.Create(t, admin, other)
	ipClaims.gets(t, ipClaims.claim(ns, "of-c", "c", ""), "10.0.0.1")
}

// #430, #431, #1250: an IPv6 network was walked through address by address, and a pin in another form than the canonical one did not hold.
func TestIPPool_LargeIPv6(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	subnet := "2001:db8::/64"
	suite.Create(t, admin, ipPool(ns, "pool", v1alpha1.IPPoolSpec{
		Pools: []v1alpha1.Pool{{Subnet: &subnet}}, PreAllocations: map[string]v1alpha1.IP{"pinned": "2001:0db8:0:0:ffff:ffff:ffff:fffe"},
	}))
	began := time.Now()
	ipClaims.gets(t, ipClaims.claim(ns, "pinned", "pool", ""), "2001:db8::ffff:ffff:ffff:fffe")
	ipClaims.gets(t, ipClaims.claim(ns, "asks", "pool", "2001:db8::8000:0:0:1"), "2001:db8::8000:0:0:1")
	ipAddressClaims.gets(t, ipAddressClaims.claim(ns, "any", "pool", ""), "2001:db8::1")
	suite.RequireDenied(t, admin.Create(t.Context(), ipClaims.claim(ns, "outside", "pool", "2001:db8:1::1")), 422, "Exhausted IP Pools")
	if took := time.Since(began); took > suite.Soon {
		t.Errorf("it took %s", took)
	}
}

// Else the record doubles with every event of the pool, its own writes among them, until
// no replica can read it in time.
func TestCooldown_AfterAConflictIsRecordedOnce(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
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
				suite.AwaitGone(t, admin, c)
				for i := range 5 {
					suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Labels[fmt.Sprint("event-", i)] = c.GetName() })
				}
				k.gets(t, k.claim(ns, "after-"+c.GetName(), "pool", ""), map[string]string{loser.GetName(): "10.0.0.1", winner.GetName(): "10.0.0.2"}[c.GetName()])
				suite.AwaitObject(t, admin, pool, func(p *v1alpha1.IPPool) string {
					if n := strings.Count(p.Annotations[butlerv1.AnnotationCooldown], "10.0.0.3"); n > 1 || c == winner && n == 0 {
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

func TestCooldown_WaitsForRoomInTheRecord(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool := ipPool(ns, "pool", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.0.0.0", "10.0.63.255")}, Prefix: 16})
			var resting []ledger.RecordedRange
			for i := range 8192 {
				a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
				resting = append(resting, ledger.RecordedRange{Range: allocator.Range{First: a, Last: a}, Since: time.Now(), Until: time.Now().Add(time.Hour)})
			}
			text, _ := poolrecord.FormatList(pool, resting, 1)
			pool.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "1h", butlerv1.AnnotationCooldown: text}
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
			suite.AwaitGone(t, admin, c)
			suite.AwaitObject(t, admin, pool, func(p *v1alpha1.IPPool) string { return p.Annotations[butlerv1.AnnotationCooldown] })
		})
	}
}

// Somebody has broken the record while nobody knew what was in it. What can be corrected
// is not thrown away.
func TestCooldown_UnreadableRecord(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	pool := ten(ns, "pool")
	const broken = `[{"range":"10.0.0.1","claim":"ipclaims.ipam.metal3.io/` // and so on
	pool.Annotations = map[string]string{butlerv1.AnnotationCooldown: broken}
	suite.Create(t, admin, pool)
	told(t, pool, "CooldownsUnreadable", "cannot be read", "correct it")
	suite.AwaitObject(t, admin, pool, func(p *v1alpha1.IPPool) string {
		if p.Status.LastUpdated == nil || p.Annotations[butlerv1.AnnotationCooldown] != broken {
			return fmt.Sprintf("annotations %v, status %+v", p.Annotations, p.Status)
		}
		return ""
	})
	suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) {
		p.Annotations[butlerv1.AnnotationCooldown] = broken + ns + `/web","uid":"there"}]`
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
func TestCooldown_RecordThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
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
	suite.AwaitGone(t, admin, first)
	suite.Create(t, admin, claim("second"), claim("third"))
	suite.AwaitObject(t, admin, pool, func(p *butlerv1.NetworkPool) string {
		if p.Annotations[butlerv1.AnnotationCooldown] != "" || p.Status.AllocationCount != 2 || p.Status.AvailableIPs != 5 {
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

func TestCooldown_DelayShortened(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	pool := single(ns, "one")
	pool.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "1 hour"}
	const rule = `metadata.annotations[butler.butlerlabs.dev/reuse-delay]: Invalid value: "1 hour": must be a duration from 0s to 720h, such as 10m`
	suite.RequireDenied(t, admin.Create(t.Context(), pool), 422, rule)
	pool.Annotations[butlerv1.AnnotationReuseDelay] = "1h"
	suite.Create(t, admin, pool)
	second := waitsForARest(t, ns)
	delay := func(text string) func(*v1alpha1.IPPool) {
		return func(p *v1alpha1.IPPool) { p.Annotations[butlerv1.AnnotationReuseDelay] = text }
	}
	suite.RequireDenied(t, suite.TryChange(t, admin, pool, delay("1 hour")), 422, rule)
	suite.Change(t, admin, pool, delay("1s"))
	ipClaims.bound(t, second)
}

// The existing provider reads the annotation ipAddress once: what somebody wrote into it
// later means nothing there. Its claims get their addresses at once, while the new
// journal lets no claim get another: also one whose address the existing provider did not
// write into it, and after an older one without address.
func TestTakeOver_KeepsTheAddressInUse(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{ClusterAPI: true})
	ns := suite.CreateNamespace(t, c)
	pool := ten(ns, "pool")
	suite.Create(t, c, pool, ipClaims.claim(ns, "exhausted", "pool", ""), ipAddressClaims.claim(ns, "exhausted", "pool", ""))
	second := ipAddressClaims.claim(ns, "second", "pool", "").(*ipamv1.IPAddressClaim)
	suite.Create(t, c, second, ipAddressClaims.holds(ns, "pool-10-0-0-4", "pool", "second", "10.0.0.4"))
	second.Status.AddressRef.Name = "pool-10-0-0-4"
	if err := c.Status().Update(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	plain := ipClaims.claim(ns, "plain", "pool", "").(*v1alpha1.IPClaim)
	edited := ipClaims.claim(ns, "edited", "pool", "10.0.0.7").(*v1alpha1.IPClaim)
	kept := ipClaims.claim(ns, "kept", "pool", "10.0.0.8").(*v1alpha1.IPClaim)
	for claim, has := range map[*v1alpha1.IPClaim]string{plain: "10.0.0.3", edited: "10.0.0.5", kept: "10.0.0.8"} {
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
	for claim, has := range map[client.Object]string{plain: "10.0.0.3", second: "10.0.0.4", edited: "10.0.0.5", kept: "10.0.0.8"} {
		suite.AwaitObject(t, c, claim, func(o client.Object) string {
			if a := o.GetAnnotations(); a[v1alpha1.AnnotationIPAddress] != has || a[butlerv1.AnnotationOrigin] != butlerv1.OriginAdopted {
				return fmt.Sprintf("annotations %v", a)
			}
			return ""
		})
	}
	suite.AwaitObject(t, c, pool, func(p *v1alpha1.IPPool) string {
		if len(p.Status.Indexes) != 4 || p.Status.Indexes["plain"] != "10.0.0.3" || p.Status.Indexes["edited"] != "10.0.0.5" || p.Status.Indexes["kept"] != "10.0.0.8" {
			return fmt.Sprintf("indexes %v", p.Status.Indexes)
		}
		return ""
	})
	var addresses v1alpha1.IPAddressList
	if err := c.List(t.Context(), &addresses, client.InNamespace(ns)); err != nil || len(addresses.Items) != 3 {
		t.Errorf("%d addresses, %v", len(addresses.Items), err)
	}
	for _, a := range addresses.Items {
		suite.AwaitObject(t, c, &a, func(a *v1alpha1.IPAddress) string {
			if len(a.OwnerReferences) != 2 {
				return fmt.Sprintf("owners %v", a.OwnerReferences)
			}
			return ""
		})
	}
}

// Taking over from the existing provider: its objects are in place as it left them, it is
// stopped and we are there. Nothing changes that has an address; what has none gets one,
// and what was going goes.
func TestTakeOver_FromTheExistingProvider(t *testing.T) {
	t.Parallel()
	const bound, exhausted, leaving = 170, 15, 15
	ns := suite.CreateNamespace(t, admin)
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
		suite.AwaitGone(t, admin, c)
	}
	for _, c := range all {
		got := ipClaims.bound(t, c)
		if had, known := want[c.GetName()]; known && got.Address != had {
			t.Errorf("%s had %s and has %s", c.GetName(), had, got.Address)
		}
	}
	suite.AwaitObject(t, admin, pool, func(p *v1alpha1.IPPool) string {
		if len(p.Status.Indexes) == bound+exhausted && *p.Status.AvailableIPCount == 0 {
			return ""
		}
		return fmt.Sprintf("%d indexes, %d free", len(p.Status.Indexes), *p.Status.AvailableIPCount)
	})
}
