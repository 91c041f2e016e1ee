package ledger

import (
	"net/netip"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

const (
	modelClaims = "claims.test"
	modelOthers = "others.test"
	modelPools  = "pools.test"
)

var (
	modelPool  = Key{Resource: modelPools, Namespace: "ns", Name: "pool"}
	modelStart = time.Unix(1_000_000, 0)
	modelRange = allocator.Range{First: netip.MustParseAddr("10.0.0.0"), Last: netip.MustParseAddr("10.0.0.9")}
)

func key(name string) Key { return Key{Resource: modelClaims, Namespace: "ns", Name: name} }

func mustRange(s string) allocator.Range {
	r, err := allocator.ParseRange(s)
	if err != nil {
		panic(err)
	}
	return r
}
