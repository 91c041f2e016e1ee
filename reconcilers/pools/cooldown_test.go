package pools

import (
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	"butlerlabs.dev/ipam/allocator/ledger"
)

func TestLeavesOutMoved(t *testing.T) {
	entry := func(first, claim string, until time.Time) ledger.RecordedRange {
		r, err := allocator.ParseRange(first)
		if err != nil {
			t.Fatal(err)
		}
		return ledger.RecordedRange{Range: r, Claim: ledger.Key{Name: claim}, Until: until}
	}
	moved, other := entry("10.0.0.1", "a", time.Time{}), entry("10.0.0.2", "b", time.Time{})
	cooling := entry("10.0.0.3", "", time.Unix(1, 0))
	for name, tc := range map[string]struct {
		stored, next []ledger.RecordedRange
		want         bool
	}{
		"nothing is listed":             {nil, []ledger.RecordedRange{moved}, false},
		"the same":                      {[]ledger.RecordedRange{moved, cooling}, []ledger.RecordedRange{moved, cooling}, false},
		"one more":                      {[]ledger.RecordedRange{moved}, []ledger.RecordedRange{moved, other}, false},
		"a cooldown has ended":          {[]ledger.RecordedRange{moved, cooling}, []ledger.RecordedRange{moved}, false},
		"without the moved range":       {[]ledger.RecordedRange{moved, other}, []ledger.RecordedRange{other}, true},
		"moved by another claim":        {[]ledger.RecordedRange{moved}, []ledger.RecordedRange{entry("10.0.0.1", "c", time.Time{})}, true},
		"in cooldown and moved no more": {[]ledger.RecordedRange{moved}, []ledger.RecordedRange{entry("10.0.0.1", "", time.Unix(1, 0))}, true},
	} {
		if got := leavesOutMoved(poolrecord.List{Ranges: tc.stored}, tc.next); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
