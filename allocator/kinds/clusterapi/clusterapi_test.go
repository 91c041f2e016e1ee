package clusterapi_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// read fills an object from YAML.
func read[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

func claimOf(t *testing.T, poolRef string) *ipamv1.IPAddressClaim {
	t.Helper()
	return read[ipamv1.IPAddressClaim](t, `{metadata: {name: web-0, namespace: default}, spec: {poolRef: `+poolRef+`}}`)
}

const (
	ippool      = `{apiGroup: ipam.metal3.io, kind: IPPool, name: pool1}`
	networkPool = `{apiGroup: butler.butlerlabs.dev, kind: NetworkPool, name: pool1}`
)

func TestOnlyClaimsOfOurPoolsAreOurs(t *testing.T) {
	cases := map[string]struct {
		poolRef string
		want    ledger.Key // zero: another provider's
	}{
		"IPPool":                         {poolRef: ippool, want: ledger.Key{Resource: "ippools.ipam.metal3.io", Namespace: "default", Name: "pool1"}},
		"NetworkPool":                    {poolRef: networkPool, want: ledger.Key{Resource: "networkpools.butler.butlerlabs.dev", Namespace: "default", Name: "pool1"}},
		"of the same name":               {poolRef: `{apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: pool1}`},
		"of the same kind":               {poolRef: `{apiGroup: ipam.example.com, kind: IPPool, name: pool1}`},
		"of the same group":              {poolRef: `{apiGroup: ipam.metal3.io, kind: GlobalIPPool, name: pool1}`},
		"of one's kind, another's group": {poolRef: `{apiGroup: ipam.metal3.io, kind: NetworkPool, name: pool1}`},
		"of no pool":                     {poolRef: `{}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ours := clusterapi.FindPoolKey(claimOf(t, tc.poolRef))
			if got != tc.want || ours != (tc.want != ledger.Key{}) {
				t.Errorf("want %+v, got %+v, ours: %v", tc.want, got, ours)
			}
		})
	}
}

func TestClaimHeedsTheClusterItNames(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "",
		`{metadata: {labels: {cluster.x-k8s.io/cluster-name: a}}}`:                         "a",
		`{spec: {clusterName: b}}`:                                                         "b",
		`{metadata: {labels: {cluster.x-k8s.io/cluster-name: a}}, spec: {clusterName: b}}`: "b",
	} {
		if got := clusterapi.FindClusterName(read[ipamv1.IPAddressClaim](t, text)); got != want {
			t.Errorf("%s: want %q, got %q", text, want, got)
		}
	}
}

func TestAddressOfAnIPPool(t *testing.T) {
	p := read[metal3v1.IPPool](t, `{spec: {namePrefix: test1-prov, pools: [{start: 192.168.0.10, end: 192.168.0.30, prefix: 25, gateway: 192.168.0.1}, {subnet: 192.168.1.1/26}], prefix: 24}}`)
	cases := map[string]struct {
		prefix  int // of the pool, where the entry has none
		name    string
		gateway string
		want    int32
	}{
		"192.168.0.13": {prefix: 24, name: "test1-prov-192-168-0-13", gateway: "192.168.0.1", want: 25},
		"192.168.1.2":  {prefix: 24, name: "test1-prov-192-168-1-2", want: 24},
		"10.0.0.1":     {name: "test1-prov-10-0-0-1"},
	}
	for address, tc := range cases {
		p.Spec.Prefix = tc.prefix
		claim := claimOf(t, ippool)
		want := ipamv1.IPAddressSpec{ClaimRef: ipamv1.IPAddressClaimReference{Name: "web-0"}, PoolRef: claim.Spec.PoolRef, Address: address, Prefix: ptr.To(tc.want), Gateway: tc.gateway}
		name, got, err := clusterapi.BuildAddress(p, claim, netip.MustParseAddr(address))
		if err != nil || name != tc.name {
			t.Errorf("%s: want name %s, got %s, %v", address, tc.name, name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}
	for _, prefix := range []int{-1, 129} {
		p.Spec.Prefix = prefix
		if _, _, err := clusterapi.BuildAddress(p, claimOf(t, ippool), netip.MustParseAddr("192.168.1.2")); !errors.Is(err, clusterapi.FailurePrefix) {
			t.Errorf("prefix %d: got %v", prefix, err)
		}
	}
}

func TestAddressOfANetworkPool(t *testing.T) {
	cases := map[string]struct {
		pool    string
		address string
		prefix  int32
		gateway string
	}{
		"with a gateway":    {pool: `{spec: {cidr: 10.40.0.0/22, gateway: 10.40.0.1}}`, address: "10.40.1.7", prefix: 22, gateway: "10.40.0.1"},
		"without a gateway": {pool: `{spec: {cidr: "2001:db8::/64"}}`, address: "2001:db8::7", prefix: 64},
		"unreadable":        {pool: `{spec: {cidr: nonsense}}`, address: "10.40.1.7", prefix: 32},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			claim := claimOf(t, networkPool)
			want := ipamv1.IPAddressSpec{ClaimRef: ipamv1.IPAddressClaimReference{Name: "web-0"}, PoolRef: claim.Spec.PoolRef, Address: tc.address, Prefix: &tc.prefix, Gateway: tc.gateway}
			name, got, err := clusterapi.BuildAddress(read[butlerv1.NetworkPool](t, tc.pool), claim, netip.MustParseAddr(tc.address))
			if name != "web-0" || err != nil {
				t.Errorf("want the claim's name, got %s, %v", name, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReasonTellsAFullPoolFromTheRest(t *testing.T) {
	full := &allocator.ExhaustedError{Requested: 1}
	for err, want := range map[error]string{
		annotated.FailureExhausted:   "PoolExhausted",
		fmt.Errorf("pool: %w", full): "PoolExhausted",
		annotated.FailureUnavailable: "AllocationFailed",
		clusterapi.FailurePrefix:     "AllocationFailed",
	} {
		if got := clusterapi.SelectReadyReason(err); got != want {
			t.Errorf("%v: want %s, got %s", err, want, got)
		}
	}
}
