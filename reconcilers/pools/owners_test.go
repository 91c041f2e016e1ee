package pools

import (
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/ledger"
)

func TestNameOwners(t *testing.T) {
	of := func(ns string, names ...string) (keys []ledger.Key) {
		for _, name := range names {
			keys = append(keys, ledger.Key{Resource: butler.ResourceIPAllocation, Namespace: ns, Name: name})
		}
		return keys
	}
	for name, tc := range map[string]struct {
		keys  []ledger.Key
		total int
		place string
		want  string
	}{
		"one":                                    {of("a", "x"), 1, "a", "by ipallocations/x"},
		"three":                                  {of("a", "z", "y", "x"), 3, "a", "by ipallocations/x, by ipallocations/y and by ipallocations/z"},
		"five":                                   {of("a", "e", "d", "c", "b", "a"), 5, "a", "by ipallocations/a, by ipallocations/b, by ipallocations/c and by 2 more"},
		"two ranges of one owner":                {of("a", "x", "x"), 1, "a", "by ipallocations/x"},
		"more that are being deleted":            {of("a", "x"), 2, "a", "by ipallocations/x and by 1 more"},
		"other namespace":                        {of("b", "x"), 1, "a", "in another namespace"},
		"namespaced owner, cluster-scoped place": {of("b", "x"), 1, "", "by a namespaced object"},
		"cluster-scoped owner":                   {[]ledger.Key{{Resource: novaedge.ResourceProxyVIP, Name: "svc-b.web"}}, 1, "", "by proxyvips/svc-b.web"},
	} {
		if got := nameOwners(tc.keys, tc.total, tc.place); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A text that changes has an event after ever longer pauses. A text that stays has an event every reportEvery.
func TestOwnersReport_Pace(t *testing.T) {
	for name, tc := range map[string]struct {
		changes bool
		want    []time.Duration
	}{
		"text changes": {true, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 640 * time.Second, 1240 * time.Second}},
		"text stays":   {false, []time.Duration{5 * time.Second, 640 * time.Second, 1240 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			var (
				r        ownersReport
				reported []time.Duration
			)
			began := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
			for after := time.Duration(0); after <= 30*time.Minute; after += time.Second {
				now, text := began.Add(after), "owners"
				if tc.changes {
					text += after.String()
				}
				if r.mayDescribe(now) && r.mayReport(text, now) {
					reported = append(reported, after)
				}
				if !r.due.After(now) {
					t.Fatalf("after %s: the next description is due at once", after)
				}
			}
			if !slices.Equal(reported, tc.want) {
				t.Errorf("events after %s, want %s", reported, tc.want)
			}
		})
	}
}
