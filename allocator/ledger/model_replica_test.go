package ledger

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// replica makes one step of one replica, if it is not asleep.
func (w *world) replica(r *replica) {
	if w.now.Before(r.paused) {
		return
	}
	switch n := w.rng.IntN(400); {
	case n < 4 && w.quiet:
	case n < 3:
		longest := []int{1, 10, 100, 400}[w.rng.IntN(4)]
		r.paused = w.now.Add(time.Duration(w.rng.IntN(longest*1000)) * time.Millisecond)
		w.logf("%s sleeps for %s", r.name(), r.paused.Sub(w.now))
		return
	case n < 4:
		w.logf("%s dies", r.name())
		w.start(r)
		return
	case n < r.lag || n < 120 && w.quiet:
		for range 1 + w.rng.IntN(3) {
			w.deliver(r)
		}
		return
	case n > 390 && w.gaps && !w.quiet:
		w.relist(r)
		return
	}
	r.book.tick(w.now)
	w.deny(r.book)
	if w.rng.IntN(4) == 0 {
		w.decide(r)
	}
	switch {
	case r.attempt != nil:
		w.outcome(r)
	case r.phase == following:
		w.follow(r)
	case r.phase == catching:
		w.catchUp(r)
	default:
		w.hold(r)
	}
}

// outcome learns what became of the write to the journal that is under way.
func (w *world) outcome(r *replica) {
	switch {
	case r.reply == 1:
		r.attempt.ResourceVersion = r.replyRV
		w.landed(r, *r.attempt)
	case r.reply == 2 || w.rng.IntN(6) == 0: // no reply in time: read
		v, ok := w.read(r)
		if !ok {
			return
		}
		switch journal.Settle(*r.attempt, v) {
		case journal.Landed:
			w.landed(r, v)
		case journal.Pending:
			r.reply = 0
			w.writes = append(w.writes, &leaseWrite{attempt: *r.attempt, from: r, life: r.life})
		case journal.Lost:
			w.logf("%s steps down", r.name())
			r.attempt, r.phase, r.current, r.since = nil, following, v, w.now
			r.book.stepDown()
		}
	}
}

func (w *world) landed(r *replica, v journal.Version) {
	r.newest, r.current, r.attempt, r.last, r.proven = version(v.ResourceVersion), v, nil, w.now, r.sent
	switch r.phase {
	case fencing:
		w.logf("%s has epoch %d", r.name(), v.Epoch)
		r.phase = catching
		r.book.takeOver(v)
	case handing:
		r.book.landed(w.now)
		r.book.stepDown()
		r.phase, r.since = following, w.now
	default:
		r.book.landed(w.now)
	}
}

func (w *world) send(r *replica, v journal.Version) {
	r.attempt, r.reply, r.sent = &v, 0, w.now
	w.writes = append(w.writes, &leaseWrite{attempt: v, from: r, life: r.life})
}

// follow reads the journal, and takes it over when its holder is silent.
func (w *world) follow(r *replica) {
	v, ok := w.read(r)
	if !ok {
		return
	}
	r.claims.find(w.now, v.Record, w.unknownTo(r))
	switch {
	case r.since.IsZero() || v.ResourceVersion != r.current.ResourceVersion:
		r.current, r.since = v, w.now
		if v.Holder != "" {
			return
		}
	case v.Holder != "" && w.now.Sub(r.since) < modelExpiry:
		return
	}
	if !w.mayLead(r) {
		return
	}
	if w.gaps && !w.quiet && w.rng.IntN(2) == 0 { // what ended the holder's connections ended those of others
		w.relist(r)
	}
	r.before, r.phase = r.current, fencing
	w.send(r, r.current.TakenOver(r.name()))
}

// catchUp serves as soon as the replica has seen what the last holder had.
func (w *world) catchUp(r *replica) {
	copied := w.copied(r)
	for _, kind := range modelKinds { // in one order, so that a seed says all
		version := r.before.Seen[kind]
		if w.unknownTo(r)(kind, version) && !w.breaks.unclaimed {
			w.logf("%s may not read %s", r.name(), kind)
			r.phase, r.since = following, w.now
			r.book.stepDown()
			return
		}
		if kind == modelOthers && (w.unreadable(kind) || w.uncounted(r)) {
			continue
		}
		switch {
		case w.breaks.noWatermark, w.breaks.noRefresh && r.book.seen[kind] >= version:
		case copied[kind] < version:
			if !w.deliver(r) {
				w.read(r) // they will not come
			}
			return
		case w.breaks.noRefresh:
			w.deliver(r)
			return
		default:
			for len(r.coming) > 0 {
				w.deliver(r)
			}
		}
	}
	r.phase = holding1
	r.book.takeRecords([]Record{w.storedRecord()})
	r.book.serve(w.now)
	w.tally.takeOvers++
	if r.off && r.book.stored[modelOthers] > 0 {
		w.tally.unserved++
	}
	w.logf("%s serves", r.name())
}

// hold is one of the things a holder does.
func (w *world) hold(r *replica) {
	b := r.book
	switch n := w.rng.IntN(20); {
	case n < 8 && (b.queued > 0 || b.wanted || w.now.Sub(r.last) > time.Second):
		w.send(r, r.current.Next(b.begin()))
	case r.setBack && !w.breaks.noSetBack: // whatever gives addresses to stored claims follows a commit
	case n < 11:
		w.sweep(r)
	case n < 15:
		w.mirror(r)
	case n >= 17 && n < 19 && w.moves:
		w.tidy(r)
	case n < 18:
		w.fulfil(r)
	case n == 19 && w.rng.IntN(20) == 0 && !w.quiet:
		b.stopping()
		r.phase = handing
		w.send(r, r.current.HandedOver(b.begin()))
	}
}

// sweep ends grants: first it touches and reads, and in a later step it acts on what it read.
func (w *world) sweep(r *replica) {
	if r.scan != nil {
		for _, l := range r.scan {
			if !r.found[l.Token] {
				w.tally.ended++
				r.book.end(l)
			}
		}
		r.scan = nil
		return
	}
	due := r.book.due(w.now)
	if len(due) == 0 {
		return
	}
	r.found, r.looked = map[journal.Token]bool{}, len(w.events)
	for _, l := range due {
		o := w.objects[l.Stored]
		switch {
		case l.outlived > 0, w.breaks.noTouch && l.Stored != "":
			r.book.end(l)
		case l.Kind == modelPools:
			r.book.outlive(w.now, l, w.pool.ResourceVersion)
		case l.UID == "":
			r.scan = append(r.scan, l)
		case o == nil || o.UID != l.UID:
			r.book.outlive(w.now, l, 0)
		default:
			n := *o
			w.store(&n, r.name()+" touches")
			r.book.outlive(w.now, l, w.rv)
			if w.breaks.unseenTouch {
				r.book.end(l)
			}
		}
	}
	for _, o := range w.objects {
		r.found[o.Token] = true
	}
}

// mirror writes what a claim's status is to be: Ready, or flagged.
func (w *world) mirror(r *replica) {
	c := w.someClaim(r)
	if c == nil {
		return
	}
	st := r.book.standing(c.UID)
	u := &update{name: c.Key.Name, uid: c.UID, resourceVersion: c.ResourceVersion}
	switch {
	case !r.book.serving || c.unserved:
		return
	case c.For != (Key{}):
		return
	case st.Confirmed && w.now.Sub(r.proven) >= modelExpiry:
		r.book.rebind(c.holding)
		return
	case st.Confirmed && !c.Ready && w.moves && !w.quiet && len(c.Ranges) == 1 && !heldFor(r.book, c.Key).IsValid():
		w.standIn(c)
		return
	case st.Confirmed && !c.Ready:
		u.what, u.change = r.name()+" marks Ready", func(c *Claim) { c.Ready, c.Flagged = true, false }
	case st.Clash != nil && !c.Flagged:
		u.what, u.change = r.name()+" flags", func(c *Claim) { c.Ready, c.Flagged = false, true }
	default:
		return
	}
	w.sendUpdate(u)
}

// someClaim picks one of the claims the replica has seen.
func (w *world) someClaim(r *replica) *claim {
	if len(r.book.claims) == 0 {
		return nil
	}
	uid := fmt.Sprintf("u%d", 1+w.rng.IntN(w.uids))
	for range w.uids {
		if c := r.book.claims[uid]; c != nil {
			return c
		}
		uid = fmt.Sprintf("u%d", 1+w.rng.IntN(w.uids))
	}
	return nil
}

// fulfil grants a range to a claim that is stored without one, and writes it.
func (w *world) fulfil(r *replica) {
	for _, uid := range slices.Sorted(maps.Keys(r.fulfils)) {
		f := r.fulfils[uid]
		if f.sent || w.rng.IntN(2) == 0 {
			continue
		}
		select {
		case err := <-f.done:
			if err != nil {
				delete(r.fulfils, uid)
				continue
			}
		default:
			continue
		}
		f.sent = true
		l := f.line
		w.sendUpdate(&update{
			what: r.name() + " fulfils", name: l.Stored, uid: uid, resourceVersion: f.rv,
			change: func(c *Claim) {
				if len(c.Ranges) > 0 {
					w.tally.extended++
				} else {
					w.tally.fulfilled++
				}
				c.Ranges, c.Token = slices.Concat(c.Ranges, l.Ranges), l.Token
			},
			done: func(bool) { delete(r.fulfils, uid) },
		})
		return
	}
	c := w.someClaim(r)
	if c == nil || c.unserved || len(c.Ranges) > 0 || r.fulfils[c.UID] != nil {
		return
	}
	if has := heldFor(r.book, c.Key); has.IsValid() {
		w.giveStored(r, c.Claim, modelWants(has, false))
		return
	}
	o := w.objects[c.Key.Name]
	w.giveStored(r, c.Claim, modelWants(allocator.Range{}, o != nil && o.dual))
}

// extend is the mutating webhook's answer to an update that asks for an IPv6 address beside what the claim has. It goes by what is stored, not by
// what the replica has seen.
func (w *world) extend(r *replica, o *object) {
	if r.fulfils[o.UID] == nil && !(r.off && o.Key.Kind == modelOthers) {
		w.giveStored(r, o.Claim, modelWants(o.Ranges[0], true))
	}
}

// giveStored takes what a stored claim lacks of what it wants. It is written, once a commit holds it, on top of the version that was asked for.
func (w *world) giveStored(r *replica, c Claim, wants []Want) {
	if len(c.Ranges) > 0 && c.Pool == (Key{}) {
		return // nowhere to take more from
	}
	l, err := r.book.grant(w.now, Request{Claim: c.Key, UID: c.UID, Version: c.ResourceVersion, Pool: c.Pool, Wants: wants})
	if err != nil {
		return
	}
	f := &fulfil{line: l, done: make(chan error, 1), rv: c.ResourceVersion}
	if l.state == open {
		f.done <- nil
	} else {
		l.done = f.done
	}
	r.fulfils[c.UID] = f
	w.logf("%s takes %s for stored %s, token %s", r.name(), l.Ranges, c.Key.Name, l.Token)
}
