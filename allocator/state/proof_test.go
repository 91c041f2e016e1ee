package state

import (
	"testing"
	"time"
)

// A proof begins after the event that it proves: a commit for everything, a read only
// where a read counts, and no read that began before the term.
func TestProofs_BeginAfterTheEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		land            func(*proofs)
		grants, journal bool // proven: a used standby grant, and a claim whose grant the journal contained
		others          bool // a claim without a grant in the journal
	}{
		"nothing":                    {land: func(*proofs) {}},
		"commit begun before landed": {land: (*proofs).commitLands},
		"commit begun after landed": {land: func(p *proofs) {
			p.commitLands()
			p.commitBegins()
			p.commitLands()
		}, grants: true, journal: true, others: true},
		"read begun before landed": {land: func(p *proofs) { p.readLands(2) }},
		"read begun after landed":  {land: func(p *proofs) { p.readLands(p.readBegins()) }, grants: true, journal: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &proofs{}
			first := p.readBegins()
			p.beginTerm()
			if p.readLands(first) {
				t.Error("a read that began before the term counts")
			}
			p.commitBegins()
			p.readBegins()
			g, journaled, other := &OpenGrant{}, &claim{journaled: true, boundAt: p.now()}, &claim{boundAt: p.now()}
			p.awaitGrant(g)
			p.awaitClaim(journaled)
			p.awaitClaim(other)
			tc.land(p)
			confirmed := map[*claim]bool{}
			p.settle(modelStart, func(c *claim) { confirmed[c] = true })
			if g.unproven == tc.grants || confirmed[journaled] != tc.journal || confirmed[other] != tc.others {
				t.Errorf("grant unproven: %t, claims confirmed: %t, %t", g.unproven, confirmed[journaled], confirmed[other])
			}
			if g.lifeBegan.Equal(modelStart) != tc.grants {
				t.Errorf("the life of the grant began at %s", g.lifeBegan.Format(time.TimeOnly))
			}
			if err := p.check(); err != nil {
				t.Error(err)
			}
		})
	}
}
