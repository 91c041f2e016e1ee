package metal3

import (
	"fmt"
	"net/netip"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/scenarios"
	"butlerlabs.dev/ipam/test/suite"
)

// The arithmetic of an entry of spec.pools, by claims: any address is the first, the last
// can be had, those beside the two cannot, and where the first few are kept the next one
// is given.
func TestIPPool_Entries(t *testing.T) {
	t.Parallel()
	all, err := scenarios.ReadEntries(testdata + "entries.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, tc := range all {
		k := bothKinds[i%len(bothKinds)]
		t.Run(tc.Name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			pool := ipPool(ns, "pool", tc.Pool())
			if tc.Refused {
				suite.RequireDenied(t, admin.Create(t.Context(), pool), 422, "spec.pools[0]")
				return
			}
			suite.Create(t, admin, pool)
			k.hasEnds(t, ns, tc)
			k.hasNames(t, ns, tc)
			for index, want := range tc.At {
				k.hasAt(t, tc, index, want)
			}
			suite.AwaitObject(t, admin, pool, func(p *v1alpha1.IPPool) string {
				if p.Status.Capacity != nil && *p.Status.Capacity == tc.Count {
					return ""
				}
				return fmt.Sprintf("%+v", p.Status)
			})
			random := ipPool(ns, "random", tc.Pool())
			random.Spec.AllocationStrategy = v1alpha1.StrategyRandom
			if err := admin.Create(t.Context(), random, client.DryRunAll); tc.Size == nil {
				suite.RequireDenied(t, err, 422, "spec.pools[0]", "cannot be used with allocationStrategy")
			} else if err != nil {
				t.Errorf("random: %v", err)
			}
		})
	}
}

// hasEnds asks for any address, for the last one, and for those beside the two.
func (k claimKind) hasEnds(t *testing.T, ns string, tc scenarios.Entry) {
	t.Helper()
	first := k.claim(ns, "first", "pool", "")
	if !tc.First.IsValid() {
		suite.Create(t, admin, first)
		k.fails(t, first, "Exhausted IP Pools")
		return
	}
	k.gets(t, first, tc.First.String())
	if tc.Last != tc.First {
		k.gets(t, k.claim(ns, "last", "pool", tc.Last.String()), tc.Last.String())
	}
	for name, a := range map[string]netip.Addr{"before": tc.First.Prev(), "behind": tc.Last.Next()} {
		k.lacks(t, ns, name, a)
	}
}

// lacks asks for an address that the pool does not reach.
func (k claimKind) lacks(t *testing.T, ns, name string, a netip.Addr) {
	t.Helper()
	if a.IsValid() {
		suite.RequireDenied(t, admin.Create(t.Context(), k.claim(ns, name, "pool", a.String())), 422, "Exhausted IP Pools")
	}
}

func (k claimKind) hasNames(t *testing.T, ns string, tc scenarios.Entry) {
	t.Helper()
	i := 0
	for address, want := range tc.Names {
		c := k.claim(ns, fmt.Sprintf("named-%d", i), "pool", address)
		k.gets(t, c, address)
		if got, _ := k.address(stored(t, c)); got != want {
			t.Errorf("%s: the object's name is %s, want %s", address, got, want)
		}
		i++
	}
}

// hasAt asks a pool for any address that keeps all before an index for claims that do not
// come; want is not valid where the entry ends before it.
func (k claimKind) hasAt(t *testing.T, tc scenarios.Entry, index int64, want netip.Addr) {
	t.Helper()
	ns, spec, a := suite.CreateNamespace(t, admin), tc.Pool(), tc.First
	spec.PreAllocations = map[string]v1alpha1.IP{}
	for i := range index {
		spec.PreAllocations[fmt.Sprint(i)] = v1alpha1.IP(a.String())
		if a = a.Next(); !a.IsValid() {
			break
		}
	}
	if want.IsValid() {
		suite.Create(t, admin, ipPool(ns, "pool", spec))
		k.gets(t, k.claim(ns, "next", "pool", ""), want.String())
		return
	}
	suite.Create(t, admin, ipPool(ns, "pool", tc.Pool()))
	k.lacks(t, ns, "next", a)
}
