package plugin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// site is the namespace and the routing domain of the pools of the session.
const site = "site"

// sitePool is a pool of the session.
type sitePool struct {
	kind        string // kind of the claims, as in suite.Kinds
	name        string
	network     string
	first, last string // first and last offered address; "" for the whole network
	share       int    // number of claims, in thousandths of the claims of the session
	churn       bool   // an eighth of the created claims is deleted again
	early       bool   // the claims are created before the claims of pools that are not early
}

// sitePools lists 20 pools of every kind. The sum of the shares is 1,000.
var sitePools = []sitePool{
	{"IPAllocation", "vlan12", "172.20.40.0/21", "172.20.41.0", "172.20.46.255", 17, true, false},
	{"IPAllocation", "vlan13", "172.20.64.0/20", "", "", 20, false, false},
	{"IPAllocation", "corp", "10.0.0.0/8", "", "", 120, true, false},
	{"IPAllocation", "v6", "2001:db8:40::/64", "", "", 60, false, false},
	{"IPClaim", "metal-1", "172.21.0.0/20", "172.21.0.10", "172.21.15.250", 50, false, false},
	{"IPClaim", "metal-2", "172.21.16.0/20", "172.21.16.10", "172.21.31.250", 50, false, false},
	{"IPClaim", "metal-3", "172.21.32.0/20", "172.21.32.10", "172.21.47.250", 50, false, false},
	{"IPClaim", "metal-4", "172.21.48.0/20", "172.21.48.10", "172.21.63.250", 50, false, false},
	{"IPAddressClaim_of_IPPool", "capi-1", "172.22.0.0/20", "172.22.0.10", "172.22.15.250", 50, false, false},
	{"IPAddressClaim_of_IPPool", "capi-2", "172.22.16.0/20", "172.22.16.10", "172.22.31.250", 50, false, false},
	{"IPAddressClaim_of_IPPool", "capi-3", "172.22.32.0/20", "172.22.32.10", "172.22.47.250", 50, false, false},
	{"IPAddressClaim_of_IPPool", "capi-4", "172.22.48.0/20", "172.22.48.10", "172.22.63.250", 50, false, false},
	{"IPAddressClaim_of_NetworkPool", "vlan20", "172.23.0.0/20", "", "", 50, false, false},
	{"IPAddressClaim_of_NetworkPool", "vlan21", "172.23.16.0/20", "", "", 50, false, false},
	{"IPAddressClaim_of_NetworkPool", "vlan22", "172.23.32.0/20", "", "", 50, false, false},
	{"IPAddressClaim_of_NetworkPool", "vlan23", "172.23.48.0/20", "", "", 50, false, false},
	{"ProxyVIP", "edge-1", "172.20.46.128/25", "", "", 6, false, true}, // early, because vlan12 offers these addresses too and its claims would own them
	{"ProxyVIP", "edge-2", "172.24.0.0/22", "", "", 59, false, false},
	{"ProxyVIP", "edge-3", "172.24.4.0/22", "", "", 59, false, false},
	{"ProxyVIP", "edge-4", "172.24.8.0/22", "", "", 59, false, false},
}

// claimsWithoutPool is the number of IPClaims whose pool does not exist.
const claimsWithoutPool = 3

// object returns the pool as an object to create.
func (p sitePool) object() client.Object {
	network := netip.MustParsePrefix(p.network)
	first := p.first
	if first == "" {
		first = network.Addr().String()
	}
	o := p.claims().Pool(site, first, first)
	o.SetName(p.name)
	switch o := o.(type) {
	case *butlerv1.NetworkPool:
		o.Spec.CIDR, o.Spec.TenantAllocation = p.network, nil
		if p.first != "" {
			o.Spec.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: p.first, End: p.last}}}
			o.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: "172.20.40.0/26", Description: "management"}, {CIDR: "172.20.42.0/28", Description: "routers"}}
			o.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour}
		}
	case *metal3v1.IPPool:
		o.Spec.NamePrefix, o.Spec.Prefix = p.name, network.Bits()
		p.claims().Resize(o, p.first, p.last)
	case *novaedgev1.ProxyIPPool:
		o.Spec.Addresses, o.Spec.CIDRs = nil, []string{p.network}
		o.Labels = map[string]string{butlerv1.LabelRoutingDomain: site}
	}
	return o
}

func (p sitePool) claims() suite.Kind {
	for _, kind := range suite.Kinds {
		if kind.Name == p.kind {
			return kind
		}
	}
	panic("no kind " + p.kind)
}

// claim returns a claim of the pool. Two consecutive IPAllocations are the nodes and the
// load balancers of one tenant.
func (p sitePool) claim(random *rand.Rand, n int) client.Object {
	o := p.claims().Claim(site, fmt.Sprintf("%s-%d", p.name, n), "")
	o.SetName(fmt.Sprintf("%s-%d", p.name, n))
	p.claims().Repool(o, p.name)
	switch o := o.(type) {
	case *butlerv1.IPAllocation:
		o.Spec.Count = new(int32(1 + random.IntN(8)))
		if o.Spec.Type = butlerv1.TypeNodes; n%2 == 1 {
			o.Spec.Type = butlerv1.TypeLoadBalancer
		}
		o.Spec.TenantClusterRef = butlerv1.NamespacedObjectReference{Namespace: fmt.Sprintf("team-%d", n/2%40), Name: fmt.Sprintf("%s-c%d", p.name, n/2)}
	case *novaedgev1.ProxyVIP:
		o.Spec.PoolRef.Name = p.name
	}
	return o
}

// siteOperations is the result of fill.
type siteOperations struct {
	stored  int // number of stored claims
	deleted int
	// released is the first address of a deleted claim. The claim owned the address at
	// the time owned.
	released string
	owned    string // time in whole seconds, for --at
}

// fill creates the pools of the session and the given number of claims, in random order
// and by several clients, and creates and deletes further claims.
func fill(t *testing.T, claims int) (done siteOperations) {
	t.Helper()
	suite.Create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: site}})
	random := rand.New(rand.NewPCG(seed, seed))
	var early, all, victims []client.Object
	for _, p := range sitePools {
		suite.Create(t, admin, p.object())
		stored, deleted := max(1, claims*p.share/1000), 0
		if p.churn {
			deleted = max(1, stored/7)
		}
		order := random.Perm(stored + deleted)
		for n := range order {
			claim := p.claim(random, n)
			if p.early {
				early = append(early, claim)
			} else {
				all = append(all, claim)
			}
			if order[n] < deleted {
				victims = append(victims, claim)
			}
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	began := time.Now()
	for _, claims := range [][]client.Object{early, all} {
		concurrently(t, claims, func(o client.Object) error { return admin.Create(t.Context(), o) })
	}
	t.Logf("%d claims created in %s", len(early)+len(all), time.Since(began).Round(time.Millisecond))
	first := victims[0] // a claim of vlan12
	suite.AwaitObject(t, admin, first, func(o client.Object) string {
		if !suite.Kinds[0].Bound(o) {
			return "not bound"
		}
		return ""
	})
	done.released = suite.Kinds[0].Address(first)
	suite.Eventually(t, suite.Soon, func(context.Context) error { // wait until the manager has logged the allocation, which it also stores in the history
		done.owned = time.Now().UTC().Format(time.RFC3339)
		if r := run(t, cluster.Kubeconfig(), "who", done.released, "--log", cluster.Managers()[0].LogPath(), "--at", done.owned); !strings.Contains(r.stdout, first.GetName()) {
			return fmt.Errorf("who --at %s: %s%s", done.owned, r.stdout, r.stderr)
		}
		return nil
	})
	concurrently(t, victims, func(o client.Object) error { return admin.Delete(t.Context(), o) })
	for _, o := range victims {
		suite.AwaitGone(t, admin, o)
	}
	for n := range claimsWithoutPool {
		claim := suite.Kinds[1].Claim(site, fmt.Sprintf("metal-9-%d", n), "")
		suite.Kinds[1].Repool(claim, "metal-9")
		suite.Create(t, admin, claim)
	}
	done.stored, done.deleted = len(early)+len(all)-len(victims)+claimsWithoutPool, len(victims)
	return done
}

// concurrently calls f for each object, with at most creators calls at a time.
func concurrently(t *testing.T, objects []client.Object, f func(client.Object) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(creators)
	for _, o := range objects {
		group.Go(func() error { return f(o) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}
