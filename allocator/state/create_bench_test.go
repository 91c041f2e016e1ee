package state

import (
	"encoding/binary"
	"fmt"
	"testing"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// BenchmarkCreate measures the steps of a create in a leader, from its request to the
// commit that confirms the owner, and of the deletion of the claim. The pool has 1,000
// owners and 50 open grants beside.
func BenchmarkCreate(b *testing.B) {
	for name, standby := range map[string]int{"committed for the request": 0, "standby": 16} {
		b.Run(name, func(b *testing.B) {
			var tokens uint64
			s := New([]string{modelClaims, modelPools}, Limits{
				GrantLife: DefaultGrantLife, JournalBytes: 1 << 16, StandbyGrants: standby, StandbyShare: 16, StandbyRoom: 128,
			}, func() (t journal.Token) {
				tokens++
				binary.BigEndian.PutUint64(t[:], tokens)
				return t
			})
			s.ObservePool(modelStart, Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0/16")}})
			s.TakeOver(journal.Revision{Term: 1})
			s.StartGranting(modelStart)
			var version uint64
			create := func(n int) (*OpenGrant, Claim) {
				k := key(fmt.Sprint("c", n))
				g, err := s.Grant(modelStart, Request{Claim: k, RequestUID: k.Name, Pool: modelPool, Ranges: []RangeRequest{{Count: 1}}})
				if err != nil {
					b.Fatal(err)
				}
				s.BeginCommit()
				s.CommitLanded(modelStart)
				version++
				return g, Claim{Key: k, UID: k.Name, ResourceVersion: version, Pool: modelPool, Ranges: g.Ranges, Token: g.Token, RoutingDomainGranted: true}
			}
			for n := range 1050 {
				if _, c := create(n); n < 1000 {
					s.ObserveClaim(modelStart, c)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				_, c := create(2000)
				if err := s.CheckGrant(c, "", 0); err != nil {
					b.Fatal(err)
				}
				s.ObserveClaim(modelStart, c)
				s.BeginCommit()
				s.CommitLanded(modelStart)
				s.TakeChanged()
				s.RemoveClaim(modelStart, c, version)
			}
		})
	}
}
