package ledger

import (
	"net/netip"
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// What webhooks and reconcilers ask of pools. It changes nothing.

// Usage of a pool; false where it is not known.
func (l *Ledger) Usage(pool Key) (u Usage, ok bool) {
	l.do(func(b *book) { u, ok = b.usage(pool) })
	return u, ok
}

// Owner is a stored claim, or an address object, that has a range of a pool.
type Owner struct {
	Key Key
	UID string
}

// StayingOwners lists the owners of a pool's ranges that are not being deleted, as far as the informers show, in no order. The cost grows with the
// number of all owners.
func (l *Ledger) StayingOwners(pool Key) (owners []Owner) {
	l.do(func(b *book) {
		for c := range b.ofPool[pool] {
			if !c.Deleting {
				owners = append(owners, Owner{c.Key, c.UID})
			}
		}
	})
	return owners
}

// Stays reports whether the owner with this UID is stored, has a range, and is not being deleted, as far as the informers show.
func (l *Ledger) Stays(uid string) (yes bool) {
	l.do(func(b *book) {
		c := b.claims[uid]
		yes = c != nil && c.holding != nil && !c.Deleting
	})
	return yes
}

// HeldOf lists what stored claims of some kinds have of a pool's addresses, through this pool or not, in address order and up to a limit, and
// counts them all. What stands in for a claim goes by that one's name. The cost grows with what is held.
func (l *Ledger) HeldOf(pool Key, kinds []string, limit int) (list []Held, total int64) {
	l.do(func(b *book) { list, total = b.heldOf(pool, kinds, limit) })
	return list, total
}

// HeldThrough lists what stored claims have through a pool, inside its ranges or not: first what claims have themselves, then what objects hold for
// them, each in address order. The cost grows with what the pool's claims have.
func (l *Ledger) HeldThrough(pool Key) []Held {
	var own, standIns []Held
	l.do(func(b *book) { own, standIns = b.heldThrough(pool) })
	slices.SortFunc(own, inAddressOrder)
	slices.SortFunc(standIns, inAddressOrder)
	return append(own, standIns...)
}

// Unheld is those of some addresses that no stored claim holds in the space of a pool, and no open grant may come to.
func (l *Ledger) Unheld(pool Key, addresses []netip.Addr) (list []netip.Addr) {
	l.do(func(b *book) { list = b.unheld(pool, addresses) })
	return list
}

// OwnerIn returns who owns an address in a routing domain, or may come to own it; nil for nobody.
func (l *Ledger) OwnerIn(space string, a netip.Addr) (err *HeldError) {
	l.do(func(b *book) {
		for held := range b.space(space).core.HeldIn(allocator.Range{First: a, Last: a}) {
			if b.holdings[held.Holder].inUse() {
				err = b.heldError(held)
			}
		}
	})
	return err
}

// Resting lists the ranges of a pool that are held by nobody and not free, or soon will be: what it should record.
func (l *Ledger) Resting(pool Key) (list []Cooling) {
	l.do(func(b *book) { list = b.restingOf(pool) })
	return list
}

// MovedOf lists the ranges of a pool that went to other clusters, in address order, and what is recorded of them. known is false where the pool with this
// UID is not known.
func (l *Ledger) MovedOf(pool Key, uid string) (list []Moved, stored Record, known bool) {
	l.do(func(b *book) { list, stored, known = b.movedOf(pool, uid) })
	return list, stored, known
}

// CountMoved counts the ranges of a pool that went to other clusters.
func (l *Ledger) CountMoved(pool Key) (n MovedCount) {
	l.do(func(b *book) { n = b.countMoved(pool) })
	return n
}

// Departures lists the objects that are gone, marked as moved to another cluster, of which DecideMoved is to say whether they were.
func (l *Ledger) Departures() (all []Departure) {
	l.do(func(b *book) { all = b.departures() })
	return all
}

// ClustersOf is the Clusters of Cluster API that a claim belongs to, in its namespace: those that it names, else that of its pool.
func (l *Ledger) ClustersOf(c Claim) (names []string) {
	l.do(func(b *book) { names = b.clustersOf(c.Clusters, c.Pool) })
	return names
}

// Crowded tells whether as many ranges of a pool rest as it may record: what is released next should wait.
func (l *Ledger) Crowded(pool Key) (yes bool) {
	l.do(func(b *book) { yes = b.crowded(pool) })
	return yes
}

// Changing tells whether a change of a pool was let through that has not been seen yet.
func (l *Ledger) Changing(pool Key) (yes bool) {
	l.do(func(b *book) { yes = b.changing(pool) })
	return yes
}

// Knows tells whether this version of a pool, or a later one, is known.
func (l *Ledger) Knows(pool Key, resourceVersion uint64) (yes bool) {
	l.do(func(b *book) { yes = b.knows(pool, resourceVersion) })
	return yes
}

// Overlapping lists the pools of p's space whose windows overlap p's, in order of name.
func (l *Ledger) Overlapping(p Pool) (keys []Key) {
	l.do(func(b *book) { keys = b.overlapping(p) })
	return keys
}

// Taken finds who has an address of p already without having got it of p, that no pool offers so far or that p is to keep, or one that p is to keep for
// another; nil for nobody.
func (l *Ledger) Taken(p Pool) (err *HeldError) {
	l.do(func(b *book) { err = b.taken(p) })
	return err
}

// Offered says why the claim with this UID may not have the ranges that it holds and that nobody gave it: *NoPoolError, *FaultyPoolError or *PoolError,
// nil where it may. kept is what its pool keeps for this claim.
func (l *Ledger) Offered(uid string, kept []allocator.Range) (err error) {
	l.do(func(b *book) {
		if c := b.claims[uid]; c != nil {
			err = b.offered(c, kept)
		}
	})
	return err
}
