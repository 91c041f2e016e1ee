package metal3_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// partOf is the part of a pool that has this one entry.
func partOf(t *testing.T, entry string) metal3.Part {
	t.Helper()
	parts, errs := metal3.PartsOf(poolWith(t, fmt.Sprintf(`{pools: [%s]}`, entry)))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return parts[0]
}

func TestAddressOfAnIndex(t *testing.T) {
	cases := []struct {
		entry string
		index int64
		want  string // empty: there is none
	}{
		{entry: `{}`, index: 1},
		{entry: `{start: 192.168.0.10}`, index: 1, want: "192.168.0.11"},
		{entry: `{start: 192.168.0.10, end: 192.168.0.100}`, index: 1, want: "192.168.0.11"},
		{entry: `{start: 192.168.0.10, end: 192.168.0.100}`, index: 100},
		{entry: `{start: 192.168.0.10, subnet: 192.168.0.0/24}`, index: 1, want: "192.168.0.11"},
		{entry: `{start: 192.168.0.10, subnet: 192.168.0.0/24}`, index: 250},
		{entry: `{subnet: 192.168.0.10/24}`, index: 1, want: "192.168.0.12"},
		{entry: `{subnet: 192.168.0.10/24}`, index: 250},

		{entry: `{start: 192.168.0.10, end: 192.168.0.200}`, index: 10, want: "192.168.0.20"},
		{entry: `{start: 192.168.0.10, end: 192.168.0.200}`, index: 1000},
		{entry: `{start: 192.168.0.10}`, index: 1000, want: "192.168.3.242"},
		{entry: `{start: 255.255.255.250}`, index: 10},
		{entry: `{start: 255.255.255.254}`, index: 1, want: "255.255.255.255"},
		{entry: `{start: 255.255.255.255}`, index: 1},
		{entry: `{start: 255.255.255.0}`, index: 256},
		{entry: `{start: 0.0.0.0}`, index: 1, want: "0.0.0.1"},
		{entry: `{start: 10.0.0.1}`, index: 0, want: "10.0.0.1"},
		{entry: `{start: "fe80::1"}`, index: 0, want: "fe80::1"},
		{entry: `{start: "2001::10", end: "2001::fff0"}`, index: 10, want: "2001::1a"},
		{entry: `{start: "2001::10"}`, index: 10000, want: "2001::2720"},
		{entry: `{start: "2001::10", end: "2001::f0"}`, index: 10000},
		{entry: `{start: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0"}`, index: 100},
		{entry: `{start: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"}`, index: 1, want: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{entry: `{start: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}`, index: 1},
		{entry: `{start: "::"}`, index: 1, want: "::1"},
		{entry: `{start: "2001:db8::1"}`, index: 255, want: "2001:db8::100"},
		{entry: `{start: "2001:db8::ffff:ffff"}`, index: 1, want: "2001:db8::1:0:0"},
		{entry: `{start: "2001:db8::1", end: "2001:db8::ff"}`, index: 10, want: "2001:db8::b"},
		{entry: `{start: "2001:db8::1", end: "2001:db8::ff"}`, index: 1000},
		{entry: `{start: 192.168.0.10}`, index: -1},
	}
	for _, tc := range cases {
		t.Run(fmt.Sprintf("%s %d", tc.entry, tc.index), func(t *testing.T) {
			got := ""
			if a, ok := partOf(t, tc.entry).At(tc.index); ok {
				got = a.String()
			}
			if got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}

func TestAddressesThatAnEntryReaches(t *testing.T) {
	cases := map[string]struct {
		entry string
		want  string
		count int64
	}{
		"a subnet written with an address starts behind it": {entry: `{subnet: 192.168.1.1/26}`, want: "192.168.1.2-192.168.1.63", count: 62},
		"a subnet has no network address":                   {entry: `{subnet: 192.168.1.128/25}`, want: "192.168.1.129-192.168.1.255", count: 127},
		"a subnet has its broadcast address":                {entry: `{subnet: 192.168.0.0/24}`, want: "192.168.0.1-192.168.0.255", count: 255},
		"a subnet of four":                                  {entry: `{subnet: 192.168.0.0/30}`, want: "192.168.0.1-192.168.0.3", count: 3},
		"a subnet of two":                                   {entry: `{subnet: 192.168.0.0/31}`, want: "192.168.0.1", count: 1},
		"a subnet of one":                                   {entry: `{subnet: 192.168.0.0/32}`, want: "invalid range"},
		"the last of all subnets":                           {entry: `{subnet: 255.255.255.255/32}`, want: "invalid range"},
		"end alone":                                         {entry: `{end: 192.168.0.20}`, want: "invalid range"},
		"end beside a subnet does not count":                {entry: `{subnet: 192.168.0.0/24, end: 192.168.0.5}`, want: "192.168.0.1-192.168.0.255", count: 255},
		"start outside the subnet":                          {entry: `{start: 192.168.0.250, subnet: 192.168.1.0/24}`, want: "invalid range"},
		"start of the other family than the subnet":         {entry: `{start: 192.168.0.250, subnet: "2001:db8::/64"}`, want: "invalid range"},
		"end behind the subnet":                             {entry: `{start: 192.168.0.1, end: 192.168.0.10, subnet: 192.168.0.0/30}`, want: "192.168.0.1-192.168.0.3", count: 3},
		"end before the subnet's":                           {entry: `{start: 192.168.0.1, end: 192.168.0.10, subnet: 192.168.0.0/24}`, want: "192.168.0.1-192.168.0.10", count: 10},
		"start alone":                                       {entry: `{start: 255.255.255.250}`, want: "255.255.255.250-255.255.255.255", count: 6},
		"IPv6 in any form":                                  {entry: `{start: "2001:DB8::0001", end: "2001:db8::3"}`, want: "2001:db8::1-2001:db8::3", count: 3},
		"an IPv6 subnet":                                    {entry: `{subnet: "2001:db8::/126"}`, want: "2001:db8::1-2001:db8::3", count: 3},
		"a /64":                                             {entry: `{subnet: "2001:db8::/64"}`, want: "2001:db8::1-2001:db8::ffff:ffff:ffff:ffff", count: 1<<63 - 1},
		"IPv6 with a carry":                                 {entry: `{start: "2001:db8::ffff:fffe", end: "2001:db8::1:0:1"}`, want: "2001:db8::ffff:fffe-2001:db8::1:0:1", count: 4},
		"IPv4 to IPv6 runs on through IPv4":                 {entry: `{start: 255.255.255.0, end: "2001:db8::1"}`, want: "255.255.255.0-255.255.255.255", count: 256},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := partOf(t, tc.entry)
			if got.String() != tc.want || got.Size() != tc.count {
				t.Errorf("want %s, %d addresses, got %s, %d", tc.want, tc.count, got, got.Size())
			}
		})
	}
}

// The example of the product's documentation.
const example = `{clusterName: cluster1, namePrefix: test1-prov, pools: [{start: 192.168.0.10, end: 192.168.0.30, prefix: 25, gateway: 192.168.0.1},
	{subnet: 192.168.1.1/26}, {subnet: 192.168.1.128/25}], prefix: 24, gateway: 192.168.1.1, preAllocations: {claim1: 192.168.0.12}}`

func TestExampleGivesItsAddressesInOrder(t *testing.T) {
	p := poolWith(t, example)
	type given struct {
		Address, Gateway, Name string
		Prefix                 int
	}
	take := func(pl *place, claim string) given {
		a, err := pl.give(claim, "")
		if err != nil {
			return given{Address: err.Error()}
		}
		s := metal3.SettingsFor(p, a)
		return given{a.String(), string(*s.Gateway), metal3.AddressName(p, a), s.Prefix}
	}
	var want []given
	add := func(prefix int, gateway, network string, from, to int) {
		for i := from; i <= to; i++ {
			want = append(want, given{fmt.Sprintf("%s.%d", network, i), gateway, fmt.Sprintf("test1-prov-192-168-%s-%d", network[len("192.168."):], i), prefix})
		}
	}
	add(25, "192.168.0.1", "192.168.0", 12, 12)
	add(25, "192.168.0.1", "192.168.0", 10, 11)
	add(25, "192.168.0.1", "192.168.0", 13, 30)
	add(24, "192.168.1.1", "192.168.1", 2, 63)
	add(24, "192.168.1.1", "192.168.1", 129, 255)
	if len(want) != 210 {
		t.Fatalf("the example has 210 addresses, this test thinks %d", len(want))
	}
	want = append(want, given{Address: "Exhausted IP Pools"})

	pl := newPlace(t, p)
	got := []given{take(pl, "claim1")}
	for i := range 210 {
		got = append(got, take(pl, fmt.Sprintf("other-%d", i)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func TestPoolThatIsPartlyUnreadableOffersTheRest(t *testing.T) {
	p := poolWith(t, `{pools: [{start: 10.0.0.9, end: 10.0.0.1}, {subnet: "::ffff:1.2.3.4/120"}, {start: 10.0.1.1, end: 10.0.1.2}], preAllocations: {a: 10.0.1.2, b: nonsense}, allocationStrategy: random}`)
	p.Labels = map[string]string{"butler.butlerlabs.dev/routing-domain": "lab"}
	p.ResourceVersion = "4711"
	got, errs := metal3.PoolOf(p, random())
	if len(errs) != 3 {
		t.Errorf("want three errors, got %v", errs)
	}
	want := []allocator.Range{{First: netip.MustParseAddr("10.0.1.1"), Last: netip.MustParseAddr("10.0.1.2")}}
	if diff := cmp.Diff(want, got.Window, cmp.Comparer(func(a, b allocator.Range) bool { return a == b })); diff != "" {
		t.Errorf("window (-want +got):\n%s", diff)
	}
	if len(got.Blocked) != 1 || got.Blocked[0].String() != "10.0.1.2" {
		t.Errorf("want 10.0.1.2 kept, got %v", got.Blocked)
	}
	if got.Space != "lab" || got.ResourceVersion != 4711 || got.Key.String() != "default/pool1" || got.Policy == allocator.Sequential {
		t.Errorf("got %+v", got)
	}
}

func TestNameOfAnAddress(t *testing.T) {
	for address, want := range map[string]string{
		"192.168.0.13": "p-192-168-0-13",
		"2001:db8::5":  "p-2001-db8--5",
		"2001:db8::":   "p-2001-db8",
		"::1":          "p---1",
	} {
		if got := metal3.AddressName(&v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{NamePrefix: "p"}}, netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: want %s, got %s", address, want, got)
		}
	}
}
