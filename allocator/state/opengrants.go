package state

import (
	"fmt"
	"iter"
	"maps"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// openGrants are the grants that the journal contains, or will contain with the next
// commit, without the standby grants that are not used.
//
//	       commitBegins            commitLands
//	queued ───────────▶ in flight ───────────▶ committed
//
// A used standby grant and an inherited grant are added as committed, and a standby grant
// that is used during its commit as in flight. A grant that is withdrawn in flight ends
// when the commit has landed.
//
// Invariant: no two grants share a token. queued is the number of the queued grants.
type openGrants struct {
	byToken map[journal.Token]*OpenGrant
	queued  int
}

func newOpenGrants() openGrants { return openGrants{byToken: map[journal.Token]*OpenGrant{}} }

// add adds a grant.
func (o *openGrants) add(g *OpenGrant) {
	if o.byToken[g.Token] = g; g.state == grantQueued {
		o.queued++
	}
}

// remove removes a grant that ends.
func (o *openGrants) remove(g *OpenGrant) {
	if delete(o.byToken, g.Token); g.state == grantQueued {
		o.queued--
	}
}

// find returns the grant with a token; nil if there is none.
func (o *openGrants) find(t journal.Token) *OpenGrant { return o.byToken[t] }

// isOpen reports whether a grant has not ended.
func (o *openGrants) isOpen(g *OpenGrant) bool { return o.byToken[g.Token] == g }

// all iterates over the grants. The loop may remove grants.
func (o *openGrants) all() iter.Seq[*OpenGrant] { return maps.Values(o.byToken) }

// number returns the number of grants, and awaitCommit the number of those whose commit
// has not begun.
func (o *openGrants) number() int      { return len(o.byToken) }
func (o *openGrants) awaitCommit() int { return o.queued }

// commitBegins returns the entries for the commit that begins, and the resources of their
// objects. The grants of an omitted resource are left out.
func (o *openGrants) commitBegins(isOmitted func(resource string) bool) (entries []journal.Entry, resources map[string]bool) {
	entries, resources = make([]journal.Entry, 0, len(o.byToken)), map[string]bool{}
	for _, g := range o.byToken {
		if isOmitted(g.Resource) {
			continue
		}
		if g.state == grantQueued {
			g.state = grantInFlight
			o.queued--
		}
		resources[g.Resource] = true
		entries = append(entries, g.Entry)
	}
	return entries, resources
}

// commitLands makes the grants in flight committed: their lives begin, and their
// responses may leave. end is called for a grant that was withdrawn meanwhile.
func (o *openGrants) commitLands(now time.Time, end func(*OpenGrant)) {
	for _, g := range o.byToken {
		if g.state != grantInFlight {
			continue
		}
		g.state, g.lifeBegan = grantCommitted, now
		if g.waiter != nil {
			g.waiter <- nil
			g.waiter = nil
		}
		if g.withdrawn {
			end(g)
		}
	}
}

// beginLives begins the lives of all grants anew.
func (o *openGrants) beginLives(now time.Time) {
	for _, g := range o.byToken {
		g.lifeBegan = now
	}
}

// check verifies the invariant.
func (o *openGrants) check() error {
	queued := 0
	for token, g := range o.byToken {
		if g.Token != token {
			return fmt.Errorf("grant %s is indexed as %s", g.Token, token)
		}
		if g.state == grantQueued {
			queued++
		}
	}
	if queued != o.queued {
		return fmt.Errorf("%d grants queued, counted %d", queued, o.queued)
	}
	return nil
}
