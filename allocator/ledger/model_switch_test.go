package ledger

import (
	"strings"
	"time"
)

// This part of the model has claims of an API that some replicas are started without, and takes away the right to read them now and then, for less than
// the life of a grant. What such claims have may be given to nobody else.

// kindOfName is the kind of the claims of a name.
func kindOfName(name string) string {
	if strings.HasPrefix(name, "other-") {
		return modelOthers
	}
	return modelClaims
}

// takeRight takes the right to read these claims from all replicas.
func (w *world) takeRight() {
	if w.now.After(w.denied) && w.rng.IntN(150) == 0 {
		w.denied = w.now.Add(time.Duration(1+w.rng.IntN(100)) * time.Second)
		w.tally.denied++
		w.logf("the right to read %s is missing for %s", modelOthers, w.denied.Sub(w.now))
	}
}

func (w *world) unreadable(kind string) bool { return kind == modelOthers && w.now.Before(w.denied) }

// uncounted tells whether a replica breaks the rule to count what it does not serve.
func (w *world) uncounted(r *replica) bool { return r.off && w.breaks.uncounted }

// hides tells whether an event does not reach a replica: now, or for ever.
func (w *world) hides(r *replica, e event) bool {
	switch {
	case e.claim.Key.Kind != modelOthers:
		return false
	case w.uncounted(r):
		return true
	case w.unreadable(modelOthers):
		r.held = append(r.held, e)
		return true
	}
	return false
}

// deny has a book know whether these claims can be read.
func (w *world) deny(b *book) {
	var err error
	if w.unreadable(modelOthers) {
		err = errBehind
	}
	b.deny(w.now, modelOthers, err)
}

// unknownTo tells what a journal claims that a replica cannot read and has not seen.
func (w *world) unknownTo(r *replica) func(kind string, version uint64) bool {
	return func(kind string, version uint64) bool { return w.unreadable(kind) && r.book.seen[kind] < version }
}

// mayLead is Ledger.mayLead for a replica that counts all kinds.
func (w *world) mayLead(r *replica) bool {
	r.claims.find(w.now, r.current.Record, w.unknownTo(r))
	for kind, f := range r.claims {
		if !r.claims.outlived(w.now, kind, f.version, DefaultGrantLife) && !w.breaks.unclaimed {
			return false
		}
	}
	return true
}
