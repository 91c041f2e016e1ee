package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// settle stops the faults, runs all replicas until the leader's ledger equals the stored
// objects, and fails if that never happens.
func (w *world) settle() {
	w.creates, w.poolUpdates, w.settling, w.deniedUntil = nil, nil, true, time.Time{}
	for _, r := range w.replicas {
		if r.unserved {
			w.startReplica(r)
		}
		for _, user := range modelUsers {
			w.setInUse(r, user, nil)
		}
	}
	for round := 0; round < 4000 && w.err == nil; round++ {
		w.now = w.now.Add(20 * time.Millisecond)
		if round%100 == 99 && w.hasLeader() { // the life of grants passes, and every follower has observed the leader's commits meanwhile
			w.now = w.now.Add(DefaultGrantLife)
			for _, r := range w.replicas {
				r.unchangedSince = w.now
			}
		}
		w.stepNetwork()
		for _, r := range w.replicas {
			r.pausedUntil = time.Time{}
			w.stepReplica(r)
		}
		if round%20 == 0 && w.settled() {
			return
		}
	}
	if w.err == nil {
		w.failf("not settled: %s", w.difference())
	}
}

func (w *world) hasLeader() bool {
	return slices.ContainsFunc(w.replicas, func(r *replica) bool { return r.state.leadership.granting })
}

// settled reports whether no write is in flight and the leader's ledger equals the stored
// objects.
func (w *world) settled() bool {
	return len(w.leaseWrites)+len(w.updates) == 0 && w.difference() == ""
}

// isDeferred reports whether a claim is deferred: stored without admission, with ranges
// that the pool does not offer or blocks. A deferred claim owns nothing.
func (w *world) isDeferred(o *object) bool {
	return !o.Ready && o.Token.IsZero() && o.Pool != (Key{}) && o.OwnerClaim == (Key{}) && slices.ContainsFunc(o.Ranges, func(r allocator.Range) bool {
		return slices.ContainsFunc(w.pool.Blocked, r.Overlaps) || !slices.ContainsFunc(w.pool.Window, func(o allocator.Range) bool { return o.Covers(r) })
	})
}

// difference describes the first difference between the leader's ledger and the stored
// objects; "" if there is none.
func (w *world) difference() string {
	for _, r := range w.replicas {
		if !r.state.leadership.granting {
			continue
		}
		if n := r.state.grants.number(); n > 0 {
			return fmt.Sprintf("%d grants open", n)
		}
		for _, domain := range []string{"", modelOtherDomain} {
			if owned, want := w.ownedIn(r, domain); !slices.Equal(owned, want) {
				return fmt.Sprintf("domain %q: owned %s, stored %s", domain, strings.Join(owned, " "), strings.Join(want, " "))
			}
		}
		if w.hasChangedRecord() {
			return "a record of a routing domain is wrong"
		}
		for _, o := range w.objects {
			if !o.Ready && len(o.Ranges) > 0 && !o.Flagged && !w.isDeferred(o) {
				return o.Key.Name + " is neither Ready nor flagged"
			}
		}
		return ""
	}
	return "no replica serves"
}
