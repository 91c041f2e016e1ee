package console

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator/inventory/report"
)

// The page of a range reports addresses that no pool offers as not offered, and has a claim to copy only for free addresses of a pool.
func TestAddress_DividesRunsAtPoolBorders(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	var list report.List[report.Segment]
	if err := json.Unmarshal([]byte(mustGet(t, h, "/address.json?address=10.40.0.41-10.40.0.255")), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list.Items {
		got = append(got, strings.TrimSpace(s.Range+" "+s.State+" "+s.RoutingDomain))
	}
	want := []string{"10.40.0.41-10.40.0.55 free", "10.40.0.56-10.40.0.59 not offered", "10.40.0.60 free", "10.40.0.61-10.40.0.255 not offered", "10.40.0.41-10.40.0.255 free corp"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := strings.Count(mustGet(t, h, "/address?address=10.40.0.41-10.40.0.255"), "copy a claim"); n != 3 {
		t.Errorf("the page has %d claims to copy, want 3: one for each free run", n)
	}
}
