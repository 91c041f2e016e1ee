package inventory

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/state"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

var (
	now     = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	poolKey = butler.NetworkPoolKey("ns", "pool")
)

func newPool(cidr string, reserved ...string) *butlerv1.NetworkPool {
	p := &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool", ResourceVersion: "1"}, Spec: butlerv1.NetworkPoolSpec{CIDR: cidr}}
	for _, network := range reserved {
		p.Spec.Reserved = append(p.Spec.Reserved, butlerv1.ReservedRange{CIDR: network})
	}
	return p
}

func newAllocation(name, first, last string, purpose butlerv1.IPAllocationType) *butlerv1.IPAllocation {
	return &butlerv1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "2"},
		Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: "pool"}, Type: purpose, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: "team", Name: "web"},
			PinnedRange: &butlerv1.PinnedIPRange{StartAddress: first, EndAddress: last},
		},
	}
}

// newInventory returns an Inventory with a pool of 128 addresses and random allocations.
func newInventory(random *rand.Rand) *Inventory {
	i := New(now, nil)
	i.Add(newPool("10.0.0.0/25"))
	next := 0
	for n := 0; ; n++ {
		first := next + random.IntN(20)
		last := first + random.IntN(8)
		if next = last + 1; last > 127 {
			return i
		}
		i.Add(newAllocation(fmt.Sprint("a-", n), fmt.Sprintf("10.0.0.%d", first), fmt.Sprintf("10.0.0.%d", last), butlerv1.TypeNodes))
	}
}

// Start returns the smallest network that contains the owned addresses; the whole network
// if no address in the network is owned.
func TestStart(t *testing.T) {
	for name, test := range map[string]struct{ first, last, network, want string }{
		"at the beginning":    {"10.0.0.0", "10.0.0.9", "10.0.0.0/8", "10.0.0.0/28"},
		"across a border":     {"10.0.3.255", "10.0.4.0", "10.0.0.0/8", "10.0.0.0/21"},
		"one address":         {"10.9.8.7", "10.9.8.7", "10.0.0.0/8", "10.9.8.7/32"},
		"nothing":             {"", "", "10.0.0.0/8", "10.0.0.0/8"},
		"outside of the part": {"10.0.0.0", "10.0.0.9", "10.1.0.0/16", "10.1.0.0/16"},
	} {
		t.Run(name, func(t *testing.T) {
			i := New(now, nil)
			i.Add(newPool("10.0.0.0/8", "10.255.0.0/16"))
			if test.first != "" {
				i.Add(newAllocation("a", test.first, test.last, butlerv1.TypeNodes))
			}
			network, err := allocator.ParseRange(test.network)
			if err != nil {
				t.Fatal(err)
			}
			if got := i.Start(i.Pool(poolKey), network).Text(); got != test.want {
				t.Errorf("starts at %s, want %s", got, test.want)
			}
		})
	}
}

// Fits returns the number of sets that the state machine of the manager allocates before
// the first denial.
func TestFits_EqualsWhatIsAllocated(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		i := newInventory(random)
		sizes := []int64{1 + random.Int64N(9)}
		if random.IntN(2) == 0 {
			sizes = append(sizes, 1+random.Int64N(9))
		}
		predicted, err := i.Fits(i.Pool(poolKey), sizes)
		if err != nil {
			t.Fatal(err)
		}
		granted, used := int64(0), int64(0)
		for fits := true; fits; {
			for n, size := range sizes {
				claim := Key{Resource: butler.ResourceIPAllocation, Namespace: "ns", Name: fmt.Sprint("new-", granted, "-", n)}
				if _, err := i.state.Grant(now, state.Request{Claim: claim, Pool: poolKey, Ranges: []state.RangeRequest{{Count: size}}}); err != nil {
					fits = false
					break
				}
			}
			if fits {
				granted++
				for _, size := range sizes {
					used += size
				}
			}
		}
		if predicted.Sets != granted || predicted.AtLeast {
			t.Fatalf("round %d: %v fit %d times, predicted %+v", round, sizes, granted, predicted)
		}
		if free := predicted.Left + used; free > 128 || predicted.Unfragmented < predicted.Sets {
			t.Fatalf("round %d: %+v", round, predicted)
		}
	}
}

// allocator.CountSets returns for the vacancies of pools the number of sets that the
// state machine of the manager allocates if each range of a set is requested from pool
// after pool.
func TestVacancy_CountEqualsWhatIsAllocated(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	pool := func(name, cidr, domain string) *butlerv1.NetworkPool {
		p := newPool(cidr)
		p.Name, p.UID, p.Spec.RoutingDomain = name, types.UID(name), domain
		return p
	}
	waited := 0
	for round := range 300 {
		i := newInventory(random)
		paused := pool("paused", "10.1.0.0/26", "")
		paused.Annotations = map[string]string{"cluster.x-k8s.io/paused": "true"}
		for _, p := range []*butlerv1.NetworkPool{pool("shares", "10.0.0.64/26", ""), pool("other", "10.0.0.64/26", "red"), paused} {
			i.Add(p)
		}
		pools, vacancies := map[*allocator.Vacancy]*Pool{}, make([]*allocator.Vacancy, 4)
		for n, p := range i.Pools() {
			vacancies[n] = i.Vacancy(p)
			pools[vacancies[n]] = p
		}
		var set [][]allocator.Choice
		for range 1 + random.IntN(2) {
			choices := []allocator.Choice{}
			for _, n := range random.Perm(4)[:1+random.IntN(4)] {
				choices = append(choices, allocator.Choice{Vacancy: vacancies[n], Size: 1 + random.Int64N(12)})
			}
			set = append(set, choices)
		}
		predicted := allocator.CountSets(set)
		granted, waitsFor := int64(0), (*allocator.Vacancy)(nil)
		var next []*allocator.Vacancy
		grant := func(n int) bool {
			for m, c := range set[n] {
				claim := Key{Resource: butler.ResourceIPAllocation, Namespace: "ns", Name: fmt.Sprint("new-", granted, "-", n, "-", m)}
				_, err := i.state.Grant(now, state.Request{Claim: claim, Pool: pools[c.Vacancy].Key, Ranges: []state.RangeRequest{{Count: c.Size}}})
				if full := (*allocator.ExhaustedError)(nil); errors.As(err, &full) {
					continue
				}
				if err != nil {
					waitsFor = c.Vacancy
				} else if granted == 0 {
					next = append(next, c.Vacancy)
				}
				return err == nil
			}
			return false
		}
		for fits := true; fits; {
			for n := range set {
				if fits = grant(n); !fits {
					break
				}
			}
			if fits {
				granted++
			}
		}
		if predicted.Sets != granted || predicted.AtLeast || predicted.WaitsFor != waitsFor || !slices.Equal(predicted.Next, next) {
			t.Fatalf("round %d: %d fit, the next from %v, then waits for %v; predicted %+v", round, granted, next, waitsFor, predicted)
		}
		if waitsFor != nil {
			waited++
		}
	}
	if waited == 0 || waited == 300 {
		t.Errorf("%d of 300 rounds end at the paused pool", waited)
	}
}

// PlanUpdate returns a denial exactly if the update takes addresses from owners.
// Otherwise the planned free addresses equal the free addresses of an inventory with the
// changed pool.
func TestPlanUpdate_EqualsTheChangedPool(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	denied := 0
	for range 300 {
		i := newInventory(random)
		p := i.Pool(poolKey)
		network := fmt.Sprintf("10.0.0.%d/29", 8*random.IntN(16))
		plan := i.PlanUpdate(p, newPool("10.0.0.0/25", network))
		if (plan.Denied != nil) != (len(plan.Owners) > 0) || len(plan.Faults) > 0 {
			t.Fatalf("reserve %s: %v, %v, owners %v", network, plan.Faults, plan.Denied, plan.Owners)
		}
		if plan.Denied != nil {
			denied++
			continue
		}
		changed := newPool("10.0.0.0/25", network)
		changed.ResourceVersion = "9"
		i.Add(changed)
		if free := i.Free(i.Pool(poolKey), 1); !slices.Equal(free, plan.After) {
			t.Fatalf("reserve %s: free %v, planned %v", network, free, plan.After)
		}
	}
	if denied < 30 || denied > 270 {
		t.Errorf("%d of 300 plans are denied: the test shows nothing", denied)
	}
}

// Grid shows kinds of owners, reservations, cooldowns, grants, and addresses offered by
// another pool.
func TestGrid(t *testing.T) {
	token := journal.Token{1}
	granted, _ := allocator.ParseRange("10.0.0.6")
	i := New(now, []journal.Entry{{Token: token, Ranges: []allocator.Range{granted}, Resource: butler.ResourceIPAllocation, Namespace: "ns", NameHash: 1}})
	pool := newPool("10.0.0.0/28", "10.0.0.8/30")
	pool.Spec.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: "10.0.0.0", End: "10.0.0.13"}}}
	released := metav1.NewTime(now.Add(-time.Minute))
	reusable := metav1.NewTime(now.Add(time.Hour))
	pool.Spec.ReuseDelay = &metav1.Duration{Duration: 2 * time.Hour}
	pool.Status.Releases = []butlerv1.Release{{Name: "gone", StartAddress: "10.0.0.12", EndAddress: "10.0.0.12", ReleasedAt: released, ReusableAt: &reusable}}
	i.Add(pool)
	i.Add(&novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "edge", ResourceVersion: "1"}, Spec: novaedgev1.ProxyIPPoolSpec{Addresses: []string{"10.0.0.5", "10.0.0.14"}}})
	i.Add(newAllocation("nodes", "10.0.0.0", "10.0.0.1", butlerv1.TypeNodes))
	i.Add(newAllocation("lb", "10.0.0.2", "10.0.0.2", butlerv1.TypeLoadBalancer))
	for n, address := range []string{"10.0.0.5", "10.0.0.14"} {
		name := fmt.Sprint("vip-", n)
		i.Add(&novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "3"}, Spec: novaedgev1.ProxyVIPSpec{
			Address: novaedge.FormatAddress(mustRange(t, address).First), PoolRef: &novaedgev1.PoolReference{Name: "edge"},
		}})
	}
	network := mustRange(t, "10.0.0.0/28")
	for shift, want := range []string{"NNL··V?·rrrr~·V ", "N▒▒▒rr▒V"} {
		if got := string(runes(i.Grid(i.Pool(poolKey), network, shift))); got != want {
			t.Errorf("%d addresses a sign: %q, want %q", 1<<shift, got, want)
		}
	}
}

// Grid combines the signs of the addresses of a square, also in IPv6 networks with more
// addresses than an int64 counts.
func TestGrid_CombinesAddresses(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		i := newInventory(random)
		p, network := i.Pool(poolKey), mustRange(t, "10.0.0.0/24")
		single := i.Grid(p, network, 0)
		for shift := range 9 {
			squares := i.Grid(p, network, shift)
			if len(squares) != 256>>shift {
				t.Fatalf("%d squares of %d addresses", len(squares), 1<<shift)
			}
			for n, got := range squares {
				want := SignNotOffered
				for _, sign := range single[n<<shift : (n+1)<<shift] {
					want = want.combine(sign)
				}
				if got != want {
					t.Fatalf("square %d of %d addresses: %q, want %q", n, 1<<shift, got, want)
				}
			}
		}
	}
	i := New(now, nil)
	i.Add(newPool("2001:db8::/60"))
	i.Add(newAllocation("low", "2001:db8::10", "2001:db8::1f", butlerv1.TypeNodes))
	i.Add(newAllocation("high", "2001:db8:0:f:ffff:ffff:ffff:ffff", "2001:db8:0:f:ffff:ffff:ffff:ffff", butlerv1.TypeLoadBalancer))
	for text, want := range map[string]string{
		"2001:db8::/60 64": "▒··············▒", "2001:db8::/60 66": "▒··▒", "2001:db8::/122 4": "·N··", "2001:db8::/122 3": "··NN····", "2001:db8:0:f::/64 62": "···▒",
		"2001:db8:0:f:ffff:ffff:ffff:fffe/127 0": "·L", "2001:db8::/56 64": "▒··············▒" + strings.Repeat(" ", 240),
	} {
		network, shift, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(shift)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(runes(i.Grid(i.Pool(poolKey), mustRange(t, network), n))); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func runes(signs []Sign) (list []rune) {
	for _, s := range signs {
		list = append(list, rune(s))
	}
	return list
}

func mustRange(t *testing.T, text string) allocator.Range {
	t.Helper()
	r, err := allocator.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// CountFits counts ranges of one size exactly, also beyond MaxInt64.
func TestCountFits_Large(t *testing.T) {
	free := []allocator.Range{mustRange(t, "2001:db8::/64"), mustRange(t, "2001:db8:1::/64")}
	for size, want := range map[int64]struct {
		text string
		Fit
	}{
		1:       {"about 2^65", Fit{Sets: math.MaxInt64, Exact: 1 << 65, AtLeast: true, Unfragmented: math.MaxInt64}},
		3:       {"about 2^63.4", Fit{Sets: math.MaxInt64, Exact: (1<<65 - 2) / 3, AtLeast: true, Left: 2, Unfragmented: math.MaxInt64}},
		4:       {"about 2^63", Fit{Sets: math.MaxInt64, Exact: 1 << 63, AtLeast: true, Unfragmented: math.MaxInt64}},
		8:       {"about 2^62", Fit{Sets: 1 << 62, Exact: 1 << 62, Unfragmented: 1 << 62}},
		1 << 40: {"33554432", Fit{Sets: 1 << 25, Exact: 1 << 25, Unfragmented: 1 << 25}},
	} {
		want.Largest = math.MaxInt64
		fit, err := CountFits(free, nil, []int64{size})
		if err != nil || fit != want.Fit || fit.Text() != want.text {
			t.Errorf("%d addresses: %+v %q, %v, want %+v %q", size, fit, fit.Text(), err, want.Fit, want.text)
		}
	}
	if _, err := CountFits(free, nil, []int64{0}); err == nil {
		t.Error("a range of no address fits")
	}
}

// Claims sets the reason of a claim whose pool does not exist, although the status has no
// reason. Claims sets no reason if the pool may exist unread.
func TestClaims_ReasonOfAMissingPool(t *testing.T) {
	waiting := newAllocation("waiting", "", "", butlerv1.TypeNodes)
	waiting.Spec.PinnedRange, waiting.Spec.Count = nil, new(int32(1))
	for _, test := range []struct {
		add    []metav1.Object
		unread string
		want   string
	}{
		{add: []metav1.Object{waiting}, want: "waits for NetworkPool ns/pool, which does not exist"},
		{add: []metav1.Object{newPool("10.0.0.0/25"), waiting}},
		{add: []metav1.Object{waiting}, unread: "another"},
	} {
		i := New(now, nil)
		for _, o := range test.add {
			i.Add(o)
		}
		if test.unread != "" {
			i.LeaveOut(butler.ResourceNetworkPool, test.unread)
		}
		if list := i.Claims(); len(list) != 1 || list[0].Reason != test.want {
			t.Errorf("%+v, want the reason %q", list, test.want)
		}
	}
}

// Usage returns the number of granted addresses in the status if the journal was not
// read.
func TestUsage_GrantedWithoutTheJournal(t *testing.T) {
	granted, _ := allocator.ParseRange("10.0.0.6-10.0.0.7")
	inherited := journal.Entry{Token: journal.Token{1}, Ranges: []allocator.Range{granted}}
	inherited.MarkInherited()
	for name, tc := range map[string]struct {
		grants     []journal.Entry
		want, free int64
	}{
		"no journal":    {nil, 5, 128},
		"empty journal": {[]journal.Entry{}, 0, 128},
		// a standby grant of the leader, and one of an earlier leader, which may have
		// used it
		"standby":   {[]journal.Entry{{Token: journal.Token{1}, Ranges: []allocator.Range{granted}}}, 0, 128},
		"inherited": {[]journal.Entry{inherited}, 2, 126},
		"journal":   {[]journal.Entry{{Token: journal.Token{1}, Ranges: []allocator.Range{granted}, Resource: butler.ResourceIPAllocation, Namespace: "ns", NameHash: 1}}, 2, 126},
	} {
		i := New(now, tc.grants)
		p := newPool("10.0.0.0/25")
		p.Status.GrantedIPs = 5
		i.Add(p)
		if u := i.Usage(poolKey); u.Granted != tc.want || u.Available != tc.free {
			t.Errorf("%s: %d granted, %d free, want %d and %d", name, u.Granted, u.Available, tc.want, tc.free)
		}
	}
}

// Who returns the field and the description of a reservation.
func TestWho_DescribesReservation(t *testing.T) {
	pool := newPool("10.0.0.0/24", "10.0.0.0/28", "10.0.0.16/28")
	pool.Spec.Reserved[1].Description = "routers"
	i := New(time.Now(), nil)
	i.Add(pool)
	for address, want := range map[string]string{"10.0.0.3": "is reserved (spec.reserved[0].cidr)", "10.0.0.17": "is reserved (spec.reserved[1].cidr): routers", "10.0.0.40": ""} {
		if got := i.Who("", mustRange(t, address))[0].Reservation; got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// The names of hidden objects do not affect visible claims, whatever the name of a
// visible claim is.
func TestRestricted_NamesOfVisibleClaims(t *testing.T) {
	pool := &metal3v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "metal", UID: "metal", ResourceVersion: "1"},
		Spec: metal3v1.IPPoolSpec{
			NamePrefix: "metal", Pools: []metal3v1.Pool{{Start: ptr.To(metal3v1.IP("10.1.0.1")), End: ptr.To(metal3v1.IP("10.1.0.20"))}},
			PreAllocations: map[string]metal3v1.IP{"1": "10.1.0.9", "hidden": "10.1.0.10"},
		},
	}
	i := NewRestricted(now, func(k Key) bool { return k.Name != "hidden" })
	i.Add(pool)
	for n, name := range []string{"hidden", "1"} {
		i.Add(&metal3v1.IPClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(n + 2),
				Annotations: map[string]string{metal3v1.AnnotationIPAddress: map[string]string{"1": "10.1.0.9", "hidden": "10.1.0.10"}[name]},
			},
			Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "metal"}},
		})
	}
	for _, address := range []string{"10.1.0.9", "10.1.0.10"} {
		if g := i.Segments("", []allocator.Range{mustRange(t, address)}); len(g) != 1 || g[0].State != state.SegmentOwned {
			t.Errorf("%s: %+v, want an owned address", address, g)
		}
	}
	if _, err := i.Fits(i.Pool(metal3.IPPoolKey("ns", "metal")), []int64{2}); err == nil {
		t.Error("ranges of two addresses of an IPPool are counted")
	}
}

// Networks joins the ranges of a family in one network, but not in a network of more than
// a /8 or, for IPv6, a /32.
func TestNetworks(t *testing.T) {
	for name, test := range map[string]struct {
		cidrs []string
		want  string
	}{
		"one range":           {[]string{"203.0.113.0/24"}, "203.0.113.0/24"},
		"two families":        {[]string{"2001:db8:200::/120", "203.0.113.0/24"}, "203.0.113.0/24 2001:db8:200::/120"},
		"near ranges":         {[]string{"10.1.0.0/24", "10.1.7.0/24", "10.200.0.0/24"}, "10.0.0.0/8"},
		"distant ranges":      {[]string{"10.1.0.0/24", "192.168.4.0/25", "192.168.4.128/25", "203.0.113.0/24"}, "10.1.0.0/24 192.168.4.0/24 203.0.113.0/24"},
		"distant ranges of 6": {[]string{"2001:db8::/120", "2001:db8:ffff::/120", "fd00::/120"}, "2001:db8::/32 fd00::/120"},
		"all of IPv4":         {[]string{"0.0.0.0/1", "128.0.0.0/1"}, "0.0.0.0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Pool{}
			for _, cidr := range test.cidrs {
				p.Ranges = append(p.Ranges, mustRange(t, cidr))
			}
			p.Ranges = allocator.Union(p.Ranges)
			var got []string
			for _, network := range p.Networks() {
				prefix, _ := network.Prefix()
				got = append(got, prefix.String())
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
