package metal3

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// ten is a pool of ten addresses.
func ten(ns, name string) *v1alpha1.IPPool {
	return ipPool(ns, name, v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.0.0.1", "10.0.0.10")}, Prefix: 24})
}

// single is a pool of one address.
func single(ns, name string) *v1alpha1.IPPool {
	return ipPool(ns, name, v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.0.0.1", "10.0.0.1")}})
}

// The status of an IPClaim has no word for it, the conditions of an IPAddressClaim have.
func TestClaim_WaitingForItsPoolSaysSo(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	waits, says := ipClaims.claim(ns, "web", "pool", ""), ipAddressClaims.claim(ns, "db", "pool", "")
	suite.Create(t, admin, waits, says)
	told(t, waits, "WaitingForPool", "pool "+ns+"/pool does not exist")
	suite.AwaitObject(t, admin, says, func(o client.Object) string {
		ready := meta.FindStatusCondition(o.(*ipamv1.IPAddressClaim).Status.Conditions, clusterv1.ReadyCondition)
		if ready != nil && ready.Reason == ipamv1.IPAddressClaimReadyPoolNotReadyReason && strings.Contains(ready.Message, "pool "+ns+"/pool does not exist") {
			return ""
		}
		return fmt.Sprintf("%+v", ready)
	})
	suite.Create(t, admin, ten(ns, "pool"))
	ipClaims.bound(t, waits)
	ipAddressClaims.bound(t, says)
}

func TestClaim_ObjectsEqualThoseOfTheExistingProvider(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, ten(ns, "pool"))
	claim := ipClaims.claim(ns, "web", "pool", "").(*v1alpha1.IPClaim)
	claim.Labels = map[string]string{"app": "web"}
	ipClaims.gets(t, claim, "10.0.0.1")
	if got := stored(t, claim).Finalizers; len(got) != 1 || got[0] != v1alpha1.FinalizerIPClaim {
		t.Errorf("finalizers of the claim: %v", got)
	}
	a := stored(t, &v1alpha1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool-10-0-0-1"}})
	if len(a.Finalizers) != 1 || a.Finalizers[0] != v1alpha1.FinalizerIPAddress || a.Labels["app"] != "web" {
		t.Errorf("metadata of the address: %+v", a.ObjectMeta)
	}
	owners := map[string]bool{}
	for _, o := range a.OwnerReferences {
		owners[o.Kind+"/"+o.Name] = o.Controller == nil && o.BlockOwnerDeletion == nil
	}
	if len(owners) != 2 || !owners["IPPool/pool"] || !owners["IPClaim/web"] {
		t.Errorf("owners of the address: %+v", a.OwnerReferences)
	}
	if got := a.Spec.Claim; got != (corev1.ObjectReference{Namespace: ns, Name: "web"}) {
		t.Errorf("spec.claim: %+v", got)
	}
	pool := stored(t, ten(ns, "pool"))
	suite.AwaitObject(t, admin, pool, func(p *v1alpha1.IPPool) string {
		if len(p.Status.Indexes) == 1 && p.Status.Indexes["web"] == "10.0.0.1" && p.Status.LastUpdated != nil && *p.Status.AvailableIPCount == 9 {
			return ""
		}
		return fmt.Sprintf("%+v", p.Status)
	})
	if got := pool.Finalizers; len(got) > 1 || len(got) == 1 && got[0] != v1alpha1.FinalizerIPPool {
		t.Errorf("finalizers of the pool: %v", got)
	}

	other := ipAddressClaims.claim(ns, "db", "pool", "")
	ipAddressClaims.gets(t, other, "10.0.0.2")
	if got := stored(t, other).GetFinalizers(); len(got) != 1 || got[0] != v1alpha1.FinalizerClusterAPIClaim {
		t.Errorf("finalizers of the claim: %v", got)
	}
	b := stored(t, &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool-10-0-0-2"}})
	for _, o := range b.OwnerReferences {
		if want := o.Kind == "IPAddressClaim"; o.Controller == nil || *o.Controller != want || o.BlockOwnerDeletion == nil || !*o.BlockOwnerDeletion {
			t.Errorf("owner %s of the address: %+v", o.Kind, o)
		}
	}
	for _, c := range stored(t, other).(*ipamv1.IPAddressClaim).Status.Conditions {
		if c.Type == clusterv1.ReadyCondition && (c.Status != metav1.ConditionTrue || c.Reason == "") {
			t.Errorf("condition: %+v", c)
		}
	}
}

func TestClaim_OfANetworkPool(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	pool := &butlerv1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lab"},
		Spec:       butlerv1.NetworkPoolSpec{CIDR: "10.7.0.0/29", Gateway: "10.7.0.0", RoutingDomain: ns},
	}
	suite.Create(t, admin, pool)
	c := &ipamv1.IPAddressClaim{ObjectMeta: asking(ns, "node", ""), Spec: ipamv1.IPAddressClaimSpec{
		PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "lab"},
	}}
	ipAddressClaims.gets(t, c, "10.7.0.1")
	a := stored(t, &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "node"}})
	if a.Spec.Gateway != "10.7.0.0" || *a.Spec.Prefix != 29 {
		t.Errorf("address: %+v", a.Spec)
	}
	if o := a.OwnerReferences; len(o) != 2 || o[0].UID != c.UID || !*o[0].Controller || o[1].UID != pool.UID || *o[1].Controller || !*o[1].BlockOwnerDeletion {
		t.Errorf("owners of the address: %+v", o)
	}
	suite.RequireDenied(t, admin.Delete(t.Context(), pool), 403, "while 1 ipaddressclaim owns addresses of the pool: delete it first, see kubectl get ipaddressclaims.ipam.cluster.x-k8s.io -n "+ns)
	suite.Delete(t, admin, c)
	suite.AwaitGone(t, admin, a)
	suite.AwaitGone(t, admin, c)
	suite.Delete(t, admin, pool)
}

func TestClaim_OfAnotherProvider(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, ten(ns, "pool"))
	c := &ipamv1.IPAddressClaim{ObjectMeta: asking(ns, "theirs", ""), Spec: ipamv1.IPAddressClaimSpec{
		PoolRef: ipamv1.IPPoolReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "InClusterIPPool", Name: "pool"},
	}}
	suite.Create(t, admin, c)
	ipAddressClaims.gets(t, ipAddressClaims.claim(ns, "ours", "pool", ""), "10.0.0.1") // by then theirs has been seen
	if stored(t, c); len(c.Annotations)+len(c.Finalizers)+len(c.Status.Conditions) > 0 {
		t.Errorf("something was written to it: %+v", c)
	}
}

func TestRelease_WaitsForAllFinalizers(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool := single(ns, "one")
			suite.Create(t, admin, pool)
			first, second := k.claim(ns, "first", "one", ""), k.claim(ns, "second", "one", "")
			first.SetFinalizers([]string{"example.com/machine"})
			k.gets(t, first, "10.0.0.1")
			suite.Create(t, admin, second)
			k.fails(t, second, "Exhausted IP Pools")
			if err := admin.Delete(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			third := k.claim(ns, "third", "one", "")
			suite.Create(t, admin, third)
			k.fails(t, third, "Exhausted IP Pools") // and the first is seen to be going
			k.bound(t, first)
			suite.Change(t, admin, first, func(c client.Object) {
				var left []string
				for _, f := range c.GetFinalizers() {
					if f != "example.com/machine" {
						left = append(left, f)
					}
				}
				c.SetFinalizers(left)
			})
			suite.AwaitGone(t, admin, first)
			if spec := k.bound(t, second); spec.Address != "10.0.0.1" {
				t.Errorf("the claim that came before the third got %s", spec.Address)
			}
			k.fails(t, third, "Exhausted IP Pools")
			if err := admin.Delete(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			suite.Delete(t, admin, third)
			if p := stored(t, pool); p.DeletionTimestamp == nil {
				t.Error("the pool is not going")
			}
			suite.Delete(t, admin, second)
			suite.AwaitGone(t, admin, pool)
		})
	}
}

func TestClaim_OutlivesItsFullPool(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool := single(ns, "one")
			suite.Create(t, admin, pool)
			first, second := k.claim(ns, "first", "one", ""), k.claim(ns, "second", "one", "")
			k.gets(t, first, "10.0.0.1")
			suite.Create(t, admin, second)
			k.fails(t, second, "Exhausted IP Pools")
			if err := admin.Delete(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			suite.AwaitObject(t, admin, second, func(c client.Object) string {
				if name, failure := k.address(c); name != "" || failure == "Exhausted IP Pools" {
					return fmt.Sprintf("it names %q, and says %q of a pool that goes", name, failure)
				}
				return ""
			})
			suite.Delete(t, admin, first)
			suite.AwaitGone(t, admin, pool)
			suite.Create(t, admin, ten(ns, "one"))
			k.bound(t, second)
		})
	}
}

// The garbage collector takes off its finalizer when the address that it waits for is
// gone; here it does not run.
func TestRelease_ForegroundDeletion(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			suite.Create(t, admin, ten(ns, "pool"))
			c := k.claim(ns, "web", "pool", "")
			k.gets(t, c, "10.0.0.1")
			if err := admin.Delete(t.Context(), c, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
				t.Fatal(err)
			}
			suite.AwaitGone(t, admin, k.holds(ns, "pool-10-0-0-1", "pool", "web", "10.0.0.1"))
			suite.AwaitObject(t, admin, c, func(c client.Object) string {
				if left := c.GetFinalizers(); !slices.Equal(left, []string{metav1.FinalizerDeleteDependents}) {
					return fmt.Sprintf("it has the finalizers %q", left)
				}
				return ""
			})
			suite.Change(t, admin, c, func(c client.Object) { c.SetFinalizers(nil) })
			suite.AwaitGone(t, admin, c)
			next := k.claim(ns, "next", "pool", "")
			k.wouldGet(t, next, "10.0.0.1") // the manager observes the deletion later than the test
			k.gets(t, next, "10.0.0.1")
		})
	}
}

func TestPreAllocation_AppliesToTheNextClaim(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	pool := ten(ns, "pool")
	suite.Create(t, admin, pool)
	for i := range 5 {
		name, want := fmt.Sprintf("host-%d", i), fmt.Sprintf("10.0.0.%d", 10-i)
		suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) {
			if p.Spec.PreAllocations == nil {
				p.Spec.PreAllocations = map[string]v1alpha1.IP{}
			}
			p.Spec.PreAllocations[name] = v1alpha1.IP(want)
		})
		ipClaims.gets(t, ipClaims.claim(ns, name, "pool", ""), want)
	}
	// What CAPM3 does to have hosts keep their addresses: every address that is owned is
	// kept for who has it.
	suite.AwaitObject(t, admin, pool, func(p *v1alpha1.IPPool) string {
		if len(p.Status.Indexes) == 5 {
			return ""
		}
		return fmt.Sprintf("%+v", p.Status.Indexes)
	})
	suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Spec.PreAllocations = p.Status.Indexes })
}

// Users copy the indexes of a pool into its preAllocations: they say what its own claims
// have, and nothing of others.
func TestIndexes_ListWhatIsOwnedThroughThePool(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			a, b := suite.CreateNamespace(t, admin), suite.CreateNamespace(t, admin)
			mine, theirs := ten(a, "pool"), ten(b, "pool")
			theirs.Labels[butlerv1.LabelRoutingDomain] = a
			suite.Create(t, admin, mine, theirs)
			k.gets(t, k.claim(a, "web", "pool", ""), "10.0.0.1")
			k.gets(t, k.claim(b, "web", "pool", ""), "10.0.0.2")
			k.gets(t, k.claim(b, "db", "pool", ""), "10.0.0.3")
			suite.Create(t, admin, k.holds(a, "outside", "pool", "router", "10.9.0.1"))
			indexesBecome(t, mine, map[string]v1alpha1.IP{"web": "10.0.0.1", "router": "10.9.0.1"})
			indexesBecome(t, theirs, map[string]v1alpha1.IP{"web": "10.0.0.2", "db": "10.0.0.3"})
		})
	}
}

// Who keeps for one claim what another has is told: the one will wait until the other is
// gone.
func TestPreAllocation_OfAnOwnedAddressWarns(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			suite.Create(t, admin, pool)
			k.gets(t, k.claim(ns, "web", "pool", ""), "10.0.0.1")
			suite.Create(t, admin, k.holds(ns, "made-by-hand", "pool", "router", "10.0.0.9"))
			indexesBecome(t, pool, map[string]v1alpha1.IP{"web": "10.0.0.1", "router": "10.0.0.9"})
			for kept, owned := range map[string]string{
				`{"web":"10.0.0.1","router":"10.0.0.9","db":"10.0.0.2"}`: "",
				`{"db":"10.0.0.1"}`:  "10.0.0.1 is owned by ",
				`{"web":"10.0.0.9"}`: "10.0.0.9 is owned by ",
			} {
				_, warning := suite.Kubectl(t, cluster, "", "patch", "ippool", "pool", "-n", ns, "--type=merge", "--dry-run=server",
					"-p", `{"spec":{"preAllocations":`+kept+`}}`)
				if want := "pool " + ns + "/pool offers addresses that are not free: " + owned; owned == "" && warning != "" || owned != "" && !strings.Contains(warning, want) {
					t.Errorf("to keep %s is answered %q, want the warning %q", kept, warning, owned)
				}
			}
		})
	}
}

// A claim has the address that it was answered, whatever else is owned for it.
func TestIndexes_OfAClaimWithSeveralObjects(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	pool := ten(ns, "pool")
	suite.Create(t, admin, pool)
	ipClaims.gets(t, ipClaims.claim(ns, "web", "pool", "10.0.0.5"), "10.0.0.5")
	suite.Create(t, admin, ipClaims.holds(ns, "lower", "pool", "web", "10.0.0.2"), ipClaims.holds(ns, "higher", "pool", "web", "10.0.0.8"),
		ipClaims.holds(ns, "later", "pool", "router", "10.0.0.9"))
	indexesBecome(t, pool, map[string]v1alpha1.IP{"web": "10.0.0.5", "router": "10.0.0.9"})
}

// indexesBecome waits until a pool lists these claims and no others.
func indexesBecome(t *testing.T, p *v1alpha1.IPPool, want map[string]v1alpha1.IP) {
	t.Helper()
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.IPPool) string {
		if maps.Equal(p.Status.Indexes, want) {
			return ""
		}
		return fmt.Sprintf("indexes %v, want %v", p.Status.Indexes, want)
	})
}

func TestClaim_SampleOfClusterAPI(t *testing.T) {
	t.Parallel()
	suite.Kubectl(t, cluster, "", "create", "-f", "../../config/samples/networkpool.yaml")
	given, _ := suite.Kubectl(t, cluster, "", "create", "-f", "../../config/samples/clusterapi/ipaddressclaim.yaml", "-o", "jsonpath={.metadata.annotations.ipAddress}")
	c := stored(t, ipAddressClaims.claim(sandbox.Namespace, "worker-0", "", ""))
	if got := ipAddressClaims.bound(t, c); given != "10.40.0.64" || string(got.Address) != given || got.Prefix != 24 {
		t.Errorf("the answer has %q, the address object %+v", given, got)
	}
	suite.Delete(t, admin, c)
	pool := &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: "vlan40-pool"}}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Delete(ctx, pool) }) // the replica may have yet to hear that the claim is gone
	suite.AwaitGone(t, admin, pool)
}

// Cluster API's IPAddress has a rule for prefixes that the pool does not have: the claim
// has its address, and no object for it. Who corrects the pool need not touch the claim.
func TestIPPool_InvalidPrefixCorrected(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	p := ipPool(ns, "pool", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.0.0.1", "10.0.0.9")}, Prefix: -1})
	suite.Create(t, admin, p)
	c := ipAddressClaims.claim(ns, "claim", "pool", "")
	suite.Create(t, admin, c)
	suite.AwaitObject(t, admin, c, func(o client.Object) string {
		if _, failure := ipAddressClaims.address(o); failure != "Invalid prefix value, it must be between 0 and 128" {
			return "it says " + failure
		}
		return ""
	})

	time.Sleep(2 * time.Second) // what its own events bring about is over
	suite.Change(t, admin, p, func(p *v1alpha1.IPPool) { p.Spec.Prefix = 24 })
	if got := ipAddressClaims.bound(t, c); got.Prefix != 24 || got.Address != "10.0.0.1" {
		t.Errorf("the address object says %+v", got)
	}
}

// A claim that is being deleted, or goes to another cluster, gets nothing any more, and
// whose it has not it cannot write down as its own.
func TestClaim_BeingDeletedRequestsNothing(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		for name, going := range map[string]func(*testing.T, client.Object){
			"deleted": func(t *testing.T, c client.Object) {
				if err := admin.Delete(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			},
			"moved": func(t *testing.T, c client.Object) {
				suite.Change(t, admin, c, func(c client.Object) {
					annotations := c.GetAnnotations()
					annotations["clusterctl.cluster.x-k8s.io/delete-for-move"] = ""
					c.SetAnnotations(annotations)
				})
			},
		} {
			t.Run(k.name+" "+name, func(t *testing.T) {
				t.Parallel()
				ns := suite.CreateNamespace(t, admin)
				suite.Create(t, admin, ten(ns, "pool"))
				goes, other := k.claim(ns, "goes", "pool", ""), k.claim(ns, "other", "pool", "")
				goes.SetFinalizers([]string{"example.com/holds"})
				k.gets(t, goes, "10.0.0.1")
				time.Sleep(time.Until(goes.GetCreationTimestamp().Add(1100 * time.Millisecond))) // it is the older one
				k.gets(t, other, "10.0.0.2")
				k.bound(t, goes)
				k.bound(t, other)
				going(t, goes)
				take := func(address string) func(client.Object) {
					return func(c client.Object) {
						annotations := c.GetAnnotations()
						annotations[v1alpha1.AnnotationIPAddress] = address
						c.SetAnnotations(annotations)
					}
				}
				suite.RequireDenied(t, suite.TryChange(t, admin, goes, take("10.0.0.2")), 422, "10.0.0.2 cannot be requested by an object that is being deleted, or moved")
				suite.Change(t, admin, goes, func(c client.Object) {
					annotations := c.GetAnnotations()
					delete(annotations, v1alpha1.AnnotationIPAddress)
					c.SetAnnotations(annotations)
				})
				suite.RequireDenied(t, suite.TryChange(t, admin, goes, take("10.0.0.2")), 422, "10.0.0.2 cannot be requested by an object that is being deleted, or moved")
				if got := k.bound(t, other); got.Address != "10.0.0.2" {
					t.Errorf("the other has %+v", got)
				}
				suite.Change(t, admin, goes, func(c client.Object) { c.SetFinalizers(nil) })
			})
		}
	}
}
