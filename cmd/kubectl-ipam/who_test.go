package main

import (
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// who names the pool of an owner first, with what became of it. Other pools that offer
// the address are named apart.
func TestWho_PoolThatIsGone(t *testing.T) {
	var out strings.Builder
	a := &app{streams: streams{out: &out}}
	pool := func(name string) report.Object {
		return report.Object{Kind: "NetworkPool", Namespace: "ns", Name: name}
	}
	other := pool("other")
	r, err := allocator.ParseRange("10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	err = a.explain(report.Segment{
		Exact: r, State: "owned", Owner: &report.Object{Kind: "IPAllocation", Namespace: "ns", Name: "web"},
		OwnerPool: &report.OwnerPool{Object: pool("gone"), Missing: true}, Pools: []*report.Object{&other},
	})
	want := `10.0.0.1  owned by IPAllocation ns/web
  pool      NetworkPool ns/gone, which does not exist
  offered by NetworkPool ns/other
  domain    (default)
`
	if got := out.String(); err != nil || got != want {
		t.Errorf("got %s%v, want %s", got, err, want)
	}
}
