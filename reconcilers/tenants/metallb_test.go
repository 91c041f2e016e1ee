package tenants_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

func TestAPoolOfMetalLBListsEveryRangeByItsEnds(t *testing.T) {
	ranges := []allocator.Range{rangeOf(t, "10.92.90.49-10.92.90.50"), rangeOf(t, "10.92.90.60"), rangeOf(t, "2001:db8::/127")}
	want := []string{"10.92.90.49-10.92.90.50", "10.92.90.60-10.92.90.60", "2001:db8::-2001:db8::1"}
	got := tenants.PoolEntries(ranges)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ranges, tenants.PoolRanges(append(got, "nonsense")), compareRanges); diff != "" {
		t.Errorf("ranges read back (-want +got):\n%s", diff)
	}
}

func TestDriftNamesWhatWasChanged(t *testing.T) {
	ours := []string{"10.40.0.8-10.40.0.9", "10.40.0.12-10.40.0.12"}
	cases := map[string]struct {
		found []string
		want  string
	}{
		"nothing":      {ours, ""},
		"the order":    {[]string{ours[1], ours[0]}, ""},
		"one less":     {ours[:1], "removed 10.40.0.12-10.40.0.12"},
		"one more":     {append([]string{"10.9.0.0/24"}, ours...), "added 10.9.0.0/24"},
		"one replaced": {[]string{ours[0], "10.40.0.12-10.40.0.20"}, "added 10.40.0.12-10.40.0.20, removed 10.40.0.12-10.40.0.12"},
		"everything":   {nil, "removed 10.40.0.8-10.40.0.9, removed 10.40.0.12-10.40.0.12"},
	}
	for name, tc := range cases {
		if got := tenants.Drift(ours, tc.found); got != tc.want {
			t.Errorf("%s: want %q, got %q", name, tc.want, got)
		}
	}
}
