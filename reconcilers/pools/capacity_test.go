package pools

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func usageOf(allocated, total int64) ledger.Usage {
	return ledger.Usage{Stats: allocator.Stats{Total: total, Allocated: allocated, Available: total - allocated,
		Exact: allocator.Amounts{Total: float64(total), Allocated: float64(allocated), Available: float64(total - allocated)}}}
}

// conditionsAt returns the conditions of a pool with these numbers of addresses.
func conditionsAt(allocated, total int64) []metav1.Condition {
	return poolStatus(&v1alpha1.NetworkPool{Spec: v1alpha1.NetworkPoolSpec{CIDR: "10.0.0.0/24"}}, usageOf(allocated, total), 0, nil).Conditions
}

func TestCapacityConditions_TrueFromTheirTier(t *testing.T) {
	for _, tc := range []struct {
		allocated, total           int64
		warning, critical, exhaust bool
		percent                    string
	}{
		{50, 100, false, false, false, "50%"},
		{69, 100, false, false, false, "69%"},
		{70, 100, true, false, false, "70%"},
		{7, 10, true, false, false, "70%"},
		{21, 30, true, false, false, "70%"},
		{80, 100, true, false, false, "80%"},
		{84, 100, true, false, false, "84%"},
		{85, 100, true, true, false, "85%"},
		{94, 100, true, true, false, "94%"},
		{95, 100, true, true, true, "95%"},
		{100, 100, true, true, true, "100%"},
		{1<<63 - 2, 1<<63 - 2, true, true, true, "100%"}, // the largest exact number
	} {
		t.Run(fmt.Sprintf("%d of %d", tc.allocated, tc.total), func(t *testing.T) {
			conditions := conditionsAt(tc.allocated, tc.total)
			for kind, above := range map[string]bool{"CapacityWarning": tc.warning, "CapacityCritical": tc.critical, "CapacityExhausted": tc.exhaust} {
				c := meta.FindStatusCondition(conditions, kind)
				if c == nil {
					t.Fatalf("%s is missing", kind)
				}
				status, reason := metav1.ConditionFalse, "UtilizationBelowThreshold"
				if above {
					status, reason = metav1.ConditionTrue, "UtilizationAboveThreshold"
				}
				message := fmt.Sprintf("%s of the addresses are allocated (%d of %d)", tc.percent, tc.allocated, tc.total)
				if c.Status != status || c.Reason != reason || c.Message != message {
					t.Errorf("%s is %s, %s: %s", kind, c.Status, c.Reason, c.Message)
				}
			}
		})
	}
}

// The utilization of such a pool must not look like that of an empty pool.
func TestCapacityConditions_FullIfAllIsReserved(t *testing.T) {
	p := &v1alpha1.NetworkPool{Spec: v1alpha1.NetworkPoolSpec{CIDR: "10.0.0.0/24", Reserved: []v1alpha1.ReservedRange{{CIDR: "10.0.0.0/24"}}}}
	for _, why := range []string{
		"spec.reserved covers every address that spec offers to tenants: nothing can be allocated from this pool",
		"pools of the routing domain, or the platform (status.infrastructureAllocations), reserve every address of spec: nothing can be allocated from this pool",
	} {
		conditions := poolStatus(p, usageOf(0, 0), 0, nil).Conditions
		ready := meta.FindStatusCondition(conditions, "Ready")
		if ready.Status != metav1.ConditionFalse || ready.Reason != "NoAddresses" || ready.Message != why {
			t.Errorf("Ready is %s, %s: %s", ready.Status, ready.Reason, ready.Message)
		}
		for _, kind := range []string{"CapacityWarning", "CapacityCritical", "CapacityExhausted"} {
			if c := meta.FindStatusCondition(conditions, kind); c.Status != metav1.ConditionTrue || c.Message != "nothing can be allocated: the pool offers no address that is not reserved" {
				t.Errorf("%s is %s: %s", kind, c.Status, c.Message)
			}
		}
		p.Spec.Reserved = nil
	}
}

func TestReadyCondition_CountsTheAddressesInCooldown(t *testing.T) {
	for inCooldown, want := range map[int64]string{
		0: "170 of 191 addresses available, 2 allocations",
		1: "170 of 191 addresses available, 2 allocations, 1 address in cooldown",
		8: "170 of 191 addresses available, 2 allocations, 8 addresses in cooldown",
	} {
		usage := usageOf(21, 191)
		usage.Claims = 2
		if got := readyCondition(&v1alpha1.NetworkPool{}, usage, inCooldown, nil).Message; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFindCrossings_ReportsEachTierInBothDirections(t *testing.T) {
	const (
		warning   = "PoolCapacityWarning of CapacityWarning: at or above 70%"
		critical  = "PoolCapacityCritical of CapacityCritical: at or above 85%"
		exhausted = "PoolCapacityExhausted of CapacityExhausted: at or above 95%"
		below95   = "PoolCapacityRecovered of CapacityExhausted: below 95%"
		below85   = "PoolCapacityRecovered of CapacityCritical: below 85%"
		below70   = "PoolCapacityRecovered of CapacityWarning: below 70%"
	)
	for _, tc := range []struct {
		from, to int64
		want     []string
	}{
		{0, 50, nil},
		{50, 70, []string{warning}},
		{70, 84, nil},
		{84, 85, []string{critical}},
		{69, 100, []string{warning, critical, exhausted}},
		{84, 100, []string{critical, exhausted}},
		{96, 90, []string{below95}},
		{90, 50, []string{below85, below70}},
		{100, 0, []string{below95, below85, below70}},
		{50, 0, nil},
	} {
		t.Run(fmt.Sprintf("%d%% to %d%%", tc.from, tc.to), func(t *testing.T) {
			var got []string
			for _, c := range findCrossings(conditionsAt(tc.from, 100), conditionsAt(tc.to, 100)) {
				side, _, _ := strings.Cut(c.message, ": ")
				got = append(got, c.reason+" of "+c.condition+": "+side)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
	if got := findCrossings(nil, conditionsAt(50, 100)); len(got) > 0 {
		t.Errorf("a new pool that is half full reports %v", got)
	}
}

func TestMemory_ReportsOneReasonEveryTenMinutes(t *testing.T) {
	start := time.Unix(0, 0)
	m, other := &memory{reported: map[string]time.Time{}}, &memory{reported: map[string]time.Time{}}
	for _, tc := range []struct {
		memory *memory
		event  string
		after  time.Duration
		want   bool
	}{
		{m, "PoolCapacityWarning", 0, true},
		{m, "PoolCapacityWarning", 9 * time.Minute, false},
		{m, "PoolCapacityCritical", 9 * time.Minute, true},
		{other, "PoolCapacityWarning", 9 * time.Minute, true},
		{m, "PoolCapacityWarning", 11 * time.Minute, true},
		{m, "PoolCapacityWarning", 20 * time.Minute, false},
	} {
		if got := tc.memory.mayReport(tc.event, start.Add(tc.after)); got != tc.want {
			t.Errorf("%s after %s: reported %t, want %t", tc.event, tc.after, got, tc.want)
		}
	}
}

func TestMemory_WaitGrowsWithTheRecords(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		memory memory
		pace   pace
		want   time.Duration
	}{
		"never seen":                     {memory{}, relaxed, 0},
		"quiet":                          {memory{statusWritten: ago(time.Minute), reconciled: ago(time.Minute), statusEntries: 5000}, relaxed, 0},
		"just written":                   {memory{statusWritten: now, reconciled: now}, relaxed, 500 * time.Millisecond},
		"just written, with a long list": {memory{statusWritten: now, reconciled: now, statusEntries: 1000}, relaxed, 2500 * time.Millisecond},
		"the same, and claims wait":      {memory{statusWritten: now, reconciled: now, statusEntries: 1000}, urgent, 1025 * time.Millisecond},
		"written a while ago":            {memory{statusWritten: ago(time.Second), reconciled: ago(time.Second), statusEntries: 1000}, relaxed, 1500 * time.Millisecond},
		"reconciled without a write":     {memory{statusWritten: ago(time.Minute), reconciled: now}, relaxed, 0},
		"the same, with a long list":     {memory{statusWritten: ago(time.Minute), reconciled: now, statusEntries: 1000}, relaxed, 100 * time.Millisecond},
	} {
		if got := max(0, tc.memory.wait(tc.pace, now)); got != tc.want {
			t.Errorf("%s: it waits %s, want %s", name, got, tc.want)
		}
	}
}

func TestPoolStatus_HasEveryNumber(t *testing.T) {
	p := &v1alpha1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Spec: v1alpha1.NetworkPoolSpec{
			CIDR:     "10.92.90.0/23",
			Reserved: []v1alpha1.ReservedRange{{CIDR: "10.92.90.7/32"}, {CIDR: "10.92.90.8/29"}, {CIDR: "10.92.90.16/28"}, {CIDR: "10.92.91.192/26"}},
			TenantAllocation: &v1alpha1.TenantAllocation{Ranges: []v1alpha1.IPRange{
				{Start: "10.92.90.32", End: "10.92.90.63"}, {Start: "10.92.91.51", End: "10.92.91.191"}}},
		},
		Status: v1alpha1.NetworkPoolStatus{
			InfrastructureConsumedIPs: 1, InfrastructureAllocations: []v1alpha1.InfrastructureAllocation{{IP: "10.92.90.7", Source: "metallb"}},
		},
	}
	fragmentation := int32(19)
	got := poolStatus(p, ledger.Usage{Claims: 4, Granted: 5, Stats: allocator.Stats{Total: 173, Allocated: 28, Available: 145, LargestFree: 117, Fragmentation: fragmentation,
		Exact: allocator.Amounts{Total: 173, Allocated: 28}}}, 0, nil)
	got.Conditions = nil
	want := &v1alpha1.NetworkPoolStatus{
		TotalIPs: 173, AllocatedIPs: 28, GrantedIPs: 5, AvailableIPs: 145, Summary: "145 of 173 free, largest 117", AllocationCount: 4, FragmentationPercent: &fragmentation, LargestFreeBlock: 117,
		ObservedGeneration: 2, PoolSizeIPs: 512, ReservedIPs: 1 + 8 + 16 + 64, UnmanagedScopeIPs: 249,
		UnmanagedRanges:           []v1alpha1.UnmanagedRange{{Start: "10.92.90.1", End: "10.92.90.6"}, {Start: "10.92.90.64", End: "10.92.91.50"}},
		InfrastructureConsumedIPs: 1, InfrastructureAllocations: p.Status.InfrastructureAllocations, // of another controller
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestSummarize(t *testing.T) {
	window := func(texts ...string) (list []allocator.Range) {
		for _, text := range texts {
			r, err := allocator.ParseRange(text)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, r)
		}
		return list
	}
	for _, tc := range []struct {
		window    []allocator.Range
		allocated int64
		blocks    bool
		want      string
	}{
		{window("10.0.0.0/24"), 6, true, "250 of 256 free, largest 250"},
		{window("10.0.0.0/24"), 6, false, "250 of 256 free"},
		{window("10.0.0.0/24"), 256, true, "0 of 256 free"},
		{nil, 0, true, "0 of 0 free"},
		{window("2001:db8::/64"), 6000, true, "6000 allocated of a /64"},
		{window("2001:db8::1-2001:db8::ffff:ffff:ffff:ffff"), 6000, false, "6000 allocated of about 2^64"},
		{window("2001:db8::/64", "10.0.0.0/24"), 1, true, "1 allocated of about 2^64"},
	} {
		space := allocator.NewSpace()
		pool := space.SetPool("pool", tc.window, nil)
		if tc.allocated > 0 {
			if _, err := pool.Allocate(tc.allocated, allocator.Sequential, 1); err != nil {
				t.Fatal(err)
			}
		}
		if got := summarize(ledger.Usage{Stats: pool.Stats()}, tc.window, tc.blocks); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.window, got, tc.want)
		}
	}
}
