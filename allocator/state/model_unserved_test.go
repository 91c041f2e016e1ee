package state

import (
	"strings"
	"time"
)

// Unserved and unreadable claims. Some replicas are started without the API of
// modelOthers, and reads of modelOthers are denied at times, for less than the life of a
// grant. The addresses of these claims stay owned.

// resourceOfName returns the resource of the claim with a name.
func resourceOfName(name string) string {
	if strings.HasPrefix(name, "other-") {
		return modelOthers
	}
	return modelClaims
}

// denyReads starts a period in which no replica can read modelOthers.
func (w *world) denyReads() {
	if w.now.After(w.deniedUntil) && w.rng.IntN(150) == 0 {
		w.deniedUntil = w.now.Add(time.Duration(1+w.rng.IntN(100)) * time.Second)
		w.tally.readsDenied++
		w.logf("api: deny reading %s for %s", modelOthers, w.deniedUntil.Sub(w.now))
	}
}

// isUnreadable reports whether reads of a resource are denied at the time.
func (w *world) isUnreadable(resource string) bool {
	return resource == modelOthers && w.now.Before(w.deniedUntil)
}

// ignoresUnserved reports whether a replica does not observe the claims it does not
// serve: a break.
func (w *world) ignoresUnserved(r *replica) bool { return r.unserved && w.breaks.ignoreUnserved }

// hidesEvent reports whether an event does not reach a replica. While reads are denied,
// hidesEvent queues the event for later.
func (w *world) hidesEvent(r *replica, e event) bool {
	switch {
	case e.claim.Key.Resource != modelOthers:
		return false
	case w.ignoresUnserved(r):
		return true
	case w.isUnreadable(modelOthers):
		if len(r.hiddenEvents) == 0 {
			r.versionBeforeHidden = r.state.access.applied[modelOthers]
		}
		r.hiddenEvents = append(r.hiddenEvents, e)
		return true
	}
	return false
}

// othersVersion returns the version up to which a replica has observed modelOthers
// completely. Hidden events may be from a list, which counts as a whole only: it delivers
// objects in any order.
func (r *replica) othersVersion() uint64 {
	if len(r.hiddenEvents) > 0 {
		return r.versionBeforeHidden
	}
	return r.state.access.applied[modelOthers]
}

// setReadDenied reports to a State whether modelOthers can be read.
func (w *world) setReadDenied(b *State) {
	var err error
	if w.isUnreadable(modelOthers) {
		err = ErrBehind
	}
	b.SetReadDenied(w.now, modelOthers, err)
}

// unobservedBy returns a function that reports whether a replica cannot read a resource
// and has not observed a version of the resource.
func (w *world) unobservedBy(r *replica) func(resource string, version uint64) bool {
	return func(resource string, version uint64) bool {
		return w.isUnreadable(resource) && r.othersVersion() < version
	}
}

// mayLead is Ledger.mayLead for a replica that observes all resources.
func (w *world) mayLead(r *replica) bool {
	r.unreadable.Update(w.now, r.current.Snapshot, w.unobservedBy(r))
	for resource, f := range r.unreadable {
		if !r.unreadable.HasExpired(w.now, resource, f.version, DefaultGrantLife) && !w.breaks.ignoreUnreadable {
			return false
		}
	}
	return true
}
