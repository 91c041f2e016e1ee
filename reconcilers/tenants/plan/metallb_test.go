package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

func TestFormatPoolEntries(t *testing.T) {
	ranges := []allocator.Range{rangeOf(t, "10.92.90.49-10.92.90.50"), rangeOf(t, "10.92.90.60"), rangeOf(t, "2001:db8::/127")}
	want := []string{"10.92.90.49-10.92.90.50", "10.92.90.60-10.92.90.60", "2001:db8::-2001:db8::1"}
	got := plan.FormatPoolEntries(ranges)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ranges, plan.ParsePoolEntries(append(got, "nonsense")), compareRanges); diff != "" {
		t.Errorf("ranges read back (-want +got):\n%s", diff)
	}
}

func TestDescribeChange(t *testing.T) {
	written := []string{"10.40.0.8-10.40.0.9", "10.40.0.12-10.40.0.12"}
	cases := map[string]struct {
		found []string
		want  string
	}{
		"nothing":        {written, ""},
		"the order":      {[]string{written[1], written[0]}, ""},
		"entry removed":  {written[:1], "removed 10.40.0.12-10.40.0.12"},
		"entry added":    {append([]string{"10.9.0.0/24"}, written...), "added 10.9.0.0/24"},
		"entry replaced": {[]string{written[0], "10.40.0.12-10.40.0.20"}, "added 10.40.0.12-10.40.0.20, removed 10.40.0.12-10.40.0.12"},
		"all removed":    {nil, "removed 10.40.0.8-10.40.0.9, removed 10.40.0.12-10.40.0.12"},
	}
	for name, tc := range cases {
		if got := plan.DescribeChange(written, tc.found); got != tc.want {
			t.Errorf("%s: want %q, got %q", name, tc.want, got)
		}
	}
}
