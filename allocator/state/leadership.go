package state

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// leadership is what this replica knows of its own term and of the terms of earlier
// leaders.
//
//	         takeOver                    begin
//	follower ────────▶ has not caught up ─────▶ grants ──▶ follower
//	                                                end
//
// In quarantine a leader does not know the entries of an earlier journal that was lost:
// it grants no further addresses for a grant life. A write of an earlier leader can be
// stored for a grant life too: until then earlierWritesEnded is false.
//
// Invariant: begins is in the order of time, and its terms began before the present one.
type leadership struct {
	limits             *Limits
	granting           bool
	began              time.Time // when this replica last began to grant
	quarantined        bool
	earlierWritesEnded bool
	term               int64             // of the last revision of the journal; 0 before the first
	applied            map[string]uint64 // versions in that revision: resource -> version
	begins             []termBegin       // oldest first; those older than a grant life only as far as earlierCreatesEnded needs them
}

// termBegin is the begin of a term, as this replica knows it.
type termBegin struct {
	at time.Time // when this replica first read a revision of the term, or began to grant in its own term: not before the begin
	// applied has the versions in the last revision of earlier terms that this replica
	// read: resource -> version. The leader of the term grants, and writes objects, after
	// it has applied them.
	applied map[string]uint64
}

// takeOver records whether the journal that this replica takes over is in quarantine.
func (l *leadership) takeOver(quarantined bool) { l.quarantined = quarantined }

// begin lets this replica grant.
func (l *leadership) begin(now time.Time) {
	l.granting, l.began, l.earlierWritesEnded = true, now, false
}

// end makes this replica a follower.
func (l *leadership) end() { l.granting = false }

// mayGrant reports whether this replica leads and has caught up.
func (l *leadership) mayGrant() bool { return l.granting }

// since returns when this replica last began to grant.
func (l *leadership) since() time.Time { return l.began }

// inQuarantine reports whether this leader grants no further addresses, or will grant
// none when it has caught up.
func (l *leadership) inQuarantine() bool { return l.quarantined }

// endQuarantine ends the quarantine of a leader that has served for a grant life, and
// reports whether that has happened now.
func (l *leadership) endQuarantine(now time.Time) bool {
	ended := l.quarantined && l.servedForGrantLife(now)
	l.quarantined = l.quarantined && !ended
	return ended
}

// endEarlierWrites ends, a grant life after granting began, the time in which writes of
// earlier leaders can be stored, and reports whether that has happened now.
func (l *leadership) endEarlierWrites(now time.Time) bool {
	ended := !l.earlierWritesEnded && l.servedForGrantLife(now)
	l.earlierWritesEnded = l.earlierWritesEnded || ended
	return ended
}

func (l *leadership) servedForGrantLife(now time.Time) bool {
	return l.granting && now.Sub(l.began) >= l.limits.GrantLife
}

// haveEarlierWritesEnded reports whether no write of an earlier leader can be stored any
// more.
func (l *leadership) haveEarlierWritesEnded() bool { return l.earlierWritesEnded }

// quarantineRetries is in how many repeated requests a client waits for the end of a
// quarantine: client-go and kubectl repeat a request ten times.
const quarantineRetries = 8

// quarantineError returns why a leader in quarantine denies a request.
func (l *leadership) quarantineError() *NotServingError {
	return &NotServingError{
		Reason: fmt.Sprintf("the journal is new although pools or claims are stored: an earlier journal may have promised addresses to creates in progress, "+
			"and further addresses are allocated from %s on", l.began.Add(l.limits.GrantLife).UTC().Format(time.RFC3339)),
		RetryAfter: l.limits.GrantLife / quarantineRetries, NoOtherReplica: true,
	}
}

// recordRevision records a revision of the journal. A revision of another term begins
// that term.
func (l *leadership) recordRevision(now time.Time, v journal.Revision) {
	if l.term != v.Term && l.term != 0 {
		l.begins = append(l.begins, termBegin{now, l.applied})
		for len(l.begins) > 1 && now.Sub(l.begins[1].at) >= l.limits.GrantLife { // the later term answers the same
			l.begins = l.begins[1:]
		}
	}
	l.term, l.applied = v.Term, v.Applied
}

// earlierCreatesEnded returns since when no earlier leader has created an address object
// for a claim: since this leader began to grant. No leader creates an address object for
// a claim of whose deletion it knows. So for a claim whose deletion has the given
// version, not 0, the begin of the first term counts whose leader has applied the
// deletion before it wrote anything: further changes of the leader do not prolong a wait
// for that time.
func (l *leadership) earlierCreatesEnded(resource string, deletion uint64) time.Time {
	if deletion > 0 {
		knew := func(t termBegin) bool { return t.applied[resource] >= deletion }
		if n := slices.IndexFunc(l.begins, knew); n >= 0 && l.begins[n].at.Before(l.began) {
			return l.begins[n].at
		}
	}
	return l.began
}

// check verifies the invariant.
func (l *leadership) check() error {
	switch {
	case !slices.IsSortedFunc(l.begins, func(x, y termBegin) int { return x.at.Compare(y.at) }):
		return errors.New("the begins of terms are not in order")
	case l.term == 0 && len(l.begins) > 0:
		return errors.New("a term has begun before the first revision")
	}
	return nil
}

// MayGrant reports whether the state may grant: its replica leads and has caught up.
func (s *State) MayGrant() bool { return s.leadership.mayGrant() }

// GrantingSince returns when the state last began to grant.
func (s *State) GrantingSince() time.Time { return s.leadership.since() }

// RecordRevision records a revision of the journal that this replica has read or written.
func (s *State) RecordRevision(now time.Time, v journal.Revision) {
	s.leadership.recordRevision(now, v)
}

// EarlierWritesEnded reports whether this leader has served for longer than a write of an
// earlier leader can take to be stored.
func (s *State) EarlierWritesEnded() bool {
	return s.leadership.mayGrant() && s.leadership.haveEarlierWritesEnded()
}
