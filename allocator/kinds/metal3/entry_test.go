package metal3_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/scenarios"
)

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func TestAddressesThatAnEntryHas(t *testing.T) {
	all, err := scenarios.ReadEntries("testdata/entries.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range all {
		t.Run(tc.Name, func(t *testing.T) {
			p := &v1alpha1.IPPool{Spec: tc.Pool()}
			if errs := metal3.ValidateIPPool(p); len(errs) > 0 != tc.Refused {
				t.Errorf("pool: %v", errs)
			}
			parts, _ := metal3.ListOfferedRanges(p)
			got, want := parts[0], allocator.Range{First: tc.First, Last: tc.Last}
			if got.IsValid() != want.IsValid() || want.IsValid() && got.Range != want || got.Size() != tc.Count {
				t.Errorf("want %s, %d addresses, got %s, %d", want, tc.Count, got, got.Size())
			}
			for index, want := range tc.At {
				if a, _ := got.At(index); a != want {
					t.Errorf("%d: want %s, got %s", index, want, a)
				}
			}
			for address, want := range tc.Names {
				if got := metal3.AddressName(p, netip.MustParseAddr(address)); got != want {
					t.Errorf("%s: want name %s, got %s", address, want, got)
				}
			}
		})
	}
}

func TestExampleGivesItsAddressesInOrder(t *testing.T) {
	e, err := scenarios.ReadExample("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if errs := metal3.ValidateIPPool(&v1alpha1.IPPool{Spec: e.Pool}); len(errs) > 0 {
		t.Error(errs)
	}
	p := &v1alpha1.IPPool{Spec: e.Pool}
	pl, claim := newPlace(t, p), e.Kept
	for i, want := range e.Answers() {
		a, err := pl.give(claim, "")
		if err != nil {
			t.Fatal(err)
		}
		s := metal3.FindSettings(p, a)
		got := scenarios.Answer{Address: a, Prefix: s.Prefix, Gateway: s.Gateway, Name: metal3.AddressName(p, a)}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("claim %s (-want +got):\n%s", claim, diff)
		}
		claim = fmt.Sprintf("other-%d", i)
	}
	if a, err := pl.give(claim, ""); err == nil || err.Error() != "Exhausted IP Pools" {
		t.Errorf("one more claim got %s, %v", a, err)
	}
}

func TestPoolThatIsPartlyUnreadableOffersTheRest(t *testing.T) {
	p := poolWith(t, `{pools: [{start: 10.0.0.9, end: 10.0.0.1}, {subnet: "::ffff:1.2.3.4/120"}, {start: 10.0.1.1, end: 10.0.1.2}], preAllocations: {a: 10.0.1.2, b: nonsense}, allocationStrategy: random}`)
	p.Labels = map[string]string{"butler.butlerlabs.dev/routing-domain": "lab"}
	p.ResourceVersion = "4711"
	got, errs := metal3.ConvertPool(p, random())
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
	if got.RoutingDomain != "lab" || got.ResourceVersion != 4711 || got.Key.String() != "default/pool1" || got.Policy == allocator.Sequential {
		t.Errorf("got %+v", got)
	}
}
