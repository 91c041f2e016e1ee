package ledger

import "time"

// Observe takes in the next event of a claim.
func (l *Ledger) Observe(c Claim) {
	l.do(func(b *book) {
		b.saw(c.Key.Kind, c.ResourceVersion)
		b.observe(l.now(), c)
	})
}

// Forget takes in that the claim with this UID is gone.
func (l *Ledger) Forget(kind, uid string, resourceVersion uint64) {
	l.do(func(b *book) { b.forget(l.now(), kind, uid, resourceVersion) })
}

// DecideMoved takes in whether the object with this UID, one of Departures, was moved to another cluster. One that was not is released as any other.
func (l *Ledger) DecideMoved(uid string, moved bool) {
	l.do(func(b *book) { b.decideMoved(l.cfg.Now(), uid, moved) })
}

// RecordSaved takes in that a record was stored; one without parts is gone.
func (l *Ledger) RecordSaved(r Record) { l.do(func(b *book) { b.recordSaved(r) }) }

// TakeRecord takes in the record of a pool as it was read.
func (l *Ledger) TakeRecord(r Record) { l.do(func(b *book) { b.takeRecord(r) }) }

// Leave begins the rest of what a claim has that is about to go, and says for how long its end is to wait for the record of that in its pool. The
// claim is told of as changed when that is stored.
func (l *Ledger) Leave(uid string) (wait time.Duration) {
	l.do(func(b *book) { wait = b.leave(l.now(), uid) })
	return wait
}

// Listed is a stored claim among all of its kind.
type Listed struct {
	UID             string
	ResourceVersion uint64
	Read            func() Claim // called where this version is not known
}

// ReplaceClaims takes in all claims of a kind: what is not among them is gone.
func (l *Ledger) ReplaceClaims(kind string, all []Listed) {
	l.do(func(b *book) {
		there := make(map[string]struct{}, len(all))
		for _, c := range all {
			there[c.UID] = struct{}{}
		}
		for uid, c := range b.claims {
			if _, ok := there[uid]; !ok && c.Key.Kind == kind {
				b.forget(l.now(), kind, uid, 0)
			}
		}
		for _, c := range all {
			b.saw(kind, c.ResourceVersion)
			if known := b.claims[c.UID]; known == nil || known.ResourceVersion < c.ResourceVersion {
				b.observe(l.now(), c.Read())
			}
		}
	})
}

// SetPool takes in the next event of a pool.
func (l *Ledger) SetPool(p Pool) {
	l.do(func(b *book) {
		b.saw(p.Key.Kind, p.ResourceVersion)
		b.setPool(l.now(), p)
	})
}

// ReplacePools takes in all pools of a kind: what is not among them is gone, but for those that were read by themselves.
func (l *Ledger) ReplacePools(kind string, all []Pool) {
	l.do(func(b *book) {
		there := make(map[Key]struct{}, len(all))
		for _, p := range all {
			there[p.Key] = struct{}{}
		}
		for k, p := range b.pools {
			if _, ok := there[k]; !ok && k.Kind == kind && !p.ahead {
				b.removePool(k, 0)
			}
		}
		for _, p := range all {
			b.saw(kind, p.ResourceVersion)
			b.setPool(l.now(), p)
		}
	})
}

// LearnPool takes in a pool that was read by itself, ahead of its events.
func (l *Ledger) LearnPool(p Pool) { l.do(func(b *book) { b.learnPool(l.now(), p) }) }

// RemovePool takes in that a pool is gone.
func (l *Ledger) RemovePool(k Key, resourceVersion uint64) {
	l.do(func(b *book) { b.removePool(k, resourceVersion) })
}
