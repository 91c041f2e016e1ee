package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
)

// Rooms: a pool with few addresses, which overlaps the pool of the model, and namespaces
// whose creates are answered and never stored.
//
//	Invariant: no create from the small pool is denied because of an address of a standby grant that no create was answered with.
//	Invariant: no create of a namespace without open grants is denied because of the grants of other namespaces.

var (
	modelSmallPool  = Key{Resource: modelPools, Namespace: "ns", Name: "small"}
	modelSmallRange = allocator.Range{First: modelRange.First, Last: modelRange.First.Next()}
)

const (
	modelStandbyRoom     = 6 // of modelRange; more than modelSmallRange has
	modelFloods          = 4 // namespaces that flood
	modelFloodedJournal  = 24 * usualEntryBytes
	modelFloodsNamespace = "flood-"
)

var (
	// errKeptForNobody reports a denial because of an address that no create can have any
	// more.
	errKeptForNobody = errors.New("denied because of an unused standby grant")
	// errCrowdedOut reports a denial because of the open grants of other namespaces.
	errCrowdedOut = errors.New("denied because of the grants of other namespaces")
)

// limits returns the limits of a State in this schedule.
func (w *world) limits() Limits {
	l := Limits{GrantLife: DefaultGrantLife, JournalBytes: 200 * usualEntryBytes, StandbyGrants: w.standbyGrants, StandbyShare: 2}
	if w.smallPool && !w.breaks.noStandbyRoom {
		l.StandbyRoom = modelStandbyRoom
	}
	if w.floods {
		l.JournalBytes = modelFloodedJournal
	}
	return l
}

// observeSmallPool adds the small pool, which never changes, to a State.
func (w *world) observeSmallPool(s *State) {
	if w.smallPool {
		s.ObservePool(w.now, Pool{Key: modelSmallPool, ResourceVersion: 1, Window: []allocator.Range{modelSmallRange}, Policy: allocator.BestFit})
	}
}

// stepRooms runs an action of a client of the small pool, or of a namespace that floods.
// It reports whether it did one of these.
func (w *world) stepRooms(name string) bool {
	switch {
	case w.floods && w.rng.IntN(2) == 0:
		for range 1 + w.rng.IntN(4) {
			w.sendCreate(&createRequest{name: name, pool: modelPool, flood: fmt.Sprint(modelFloodsNamespace, w.rng.IntN(modelFloods))})
		}
	case w.smallPool && w.rng.IntN(3) == 0:
		w.sendCreate(&createRequest{pool: modelSmallPool})
	default:
		return false
	}
	return true
}

// checkDenial checks the denial of a create.
func (w *world) checkDenial(c *createRequest, s *State, err error) {
	full := (*NotServingError)(nil)
	switch {
	case errors.As(err, &full) && full.JournalFull && c.flood == "" && s.journalRoom.byAccount["ns"].entries == 0:
		w.tally.journalFull++
		w.failf("%w: %w", errCrowdedOut, err)
	case errors.As(err, &full) && full.JournalFull:
		w.tally.journalFull++
	case errors.Is(err, allocator.ErrExhausted) && c.pool == modelSmallPool:
		w.tally.smallPoolFull++
		for owned := range s.domain("").core.OwnedIn(modelSmallRange) {
			if h := s.holdings.find(owned.OwnerID); h.state() == stateInherited && !w.mayBeStored(h) {
				w.failf("%w: %s", errKeptForNobody, owned.Range)
			}
		}
	}
}

// mayBeStored reports whether a create may have been answered with a grant of a holding:
// the grant names its claim, or its token is in a response.
func (w *world) mayBeStored(h *holding) bool {
	for _, g := range h.grants {
		if _, answered := w.callOfToken[g.Token]; answered || !g.IsStandby() {
			return true
		}
	}
	return false
}

// grantAsBroken is Grant under the rules that breaks replace.
func (b *brokenState) grantAsBroken(q Request, grant func() (*OpenGrant, error)) (*OpenGrant, error) {
	if b.breaks.ignoreShares && strings.HasPrefix(q.Claim.Namespace, modelFloodsNamespace) {
		b.limits.JournalBytes *= 4
		defer func() { b.limits.JournalBytes /= 4 }()
	}
	g, err := grant()
	if !b.breaks.reuseInherited || !errors.Is(err, allocator.ErrExhausted) {
		return g, err
	}
	for _, open := range b.openStandby() {
		b.endGrant(open)
	}
	return grant()
}

// openStandby lists the standby grants of an earlier leader.
func (s *State) openStandby() (list []*OpenGrant) {
	for g := range s.grants.all() {
		if g.IsStandby() {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(x, y *OpenGrant) int { return bytes.Compare(x.Token[:], y.Token[:]) })
	return list
}
