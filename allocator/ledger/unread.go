package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// A replica counts every kind of this release, whichever APIs are switched on. What it cannot count stops the other APIs for one life of a grant at most:
//
//	what the journal claims of a kind       the API server          this replica
//	objects stored, kind counted here       shows them              counts them
//	objects stored                          does not serve the kind knows that there are none
//	objects stored                          denies the right        leads with what it has seen of them if that is as much as the journal claims; else waits
//	                                                                for the life of a grant since it first found the claim so, then leads without them
//	objects stored, kind of a later release shows some              does not lead: nothing here reads their addresses
//	open grants only                        any                     leads: their ranges are kept for the life of a grant
//
// A leader that loses the right to read a kind grants nothing that depends on the kind from then on. It keeps what it knew of the kind, so that no
// address is given again that it saw owned; after the life of a grant its journal claims nothing of the kind any more.

// maxUnobserved bounds the time between two looks of a replica that count as one observation: what a replica that was frozen for longer finds denied may
// have been readable meanwhile.
const maxUnobserved = 10 * time.Second

// denial is since when the API server refuses to show a kind.
type denial struct {
	err      error
	since    time.Time
	observed time.Time // last
	outlived bool      // for the life of a grant
}

func (d denial) notServing(kind string) error {
	return &NotServingError{Here: true, RetryAfter: 5 * time.Second, Reason: fmt.Sprintf("objects of %s cannot be read: %v", kind, d.err)}
}

// deny records whether the API server refuses to show a kind; err is nil where it does not.
func (b *book) deny(now time.Time, kind string, err error) {
	before := b.denied[kind]
	if err == nil {
		delete(b.denied, kind)
		b.wanted = b.wanted || before.outlived
		return
	}
	d := before
	d.err = err
	if before.err == nil || now.Sub(before.observed) > maxUnobserved {
		d.since = now
	}
	d.observed = now
	d.outlived = now.Sub(d.since) >= b.limits.life
	b.denied[kind] = d
	b.wanted = b.wanted || d.outlived && !before.outlived
}

// mayEnd reports whether a grant can end once its life has passed: its object must be readable, and a stored claim is written to first, which only a replica
// may that serves its API. Else its range is kept for as long.
func (b *book) mayEnd(l *line) bool {
	return b.denied[l.Kind].err == nil && (!b.unserved[l.Kind] || l.UID == "")
}

// cannotBeReady reports whether nothing can mark a claim Ready any more: its API is switched off, and the writes of earlier leaders have ended.
func (b *book) cannotBeReady(c *claim) bool { return c.unserved && b.settled && !c.Ready }

// outlast ends the time in which writes of earlier leaders may land. The owners whose rivals are of an API that is switched off wait for it.
func (b *book) outlast(now time.Time) {
	if !b.serving || b.settled || now.Sub(b.served) < b.limits.life {
		return
	}
	b.settled = true
	for _, s := range b.spaces {
		for h := range s.contested {
			if h.claim == nil || !h.claim.unserved {
				continue
			}
			for _, r := range h.ranges {
				for held := range s.core.HeldIn(r) {
					b.changedBy(b.holdings[held.Holder])
				}
			}
		}
	}
}

// claimed is what a journal claims of kinds that this replica cannot read: kind -> the claim, and since when this replica finds it so.
type claimed map[string]finding

type finding struct {
	version  uint64 // Seen of the kind
	since    time.Time
	observed time.Time // last
}

// find updates the claims by a version of the journal. A claim that has changed begins anew, and so does one that was known meanwhile, or may have been.
func (c claimed) find(now time.Time, r journal.Record, unknown func(kind string, version uint64) bool) {
	maps.DeleteFunc(c, func(kind string, _ finding) bool { return r.Seen[kind] == 0 || !unknown(kind, r.Seen[kind]) })
	for kind, version := range r.Seen {
		if version == 0 || !unknown(kind, version) {
			continue
		}
		f := c[kind]
		if f.version != version || now.Sub(f.observed) > maxUnobserved {
			f = finding{version: version, since: now}
		}
		f.observed = now
		c[kind] = f
	}
}

// outlived reports whether the journal has claimed this version of a kind for the life of a grant, since this replica cannot read it.
func (c claimed) outlived(now time.Time, kind string, version uint64, life time.Duration) bool {
	f, found := c[kind]
	return found && f.version == version && now.Sub(f.since) >= life
}

// find updates what the journal claims of kinds that this replica cannot read, and has not seen as far as that.
func (l *Ledger) find(source Source, r journal.Record) {
	l.claimed.find(time.Now(), r, func(kind string, version uint64) bool {
		return !l.counts(kind) || source.Reading(kind).Denied != nil && source.Seen(kind) < version
	})
}

var errUnknownKind = errors.New("this release does not know the kind")

// counts reports whether this release counts a kind.
func (l *Ledger) counts(kind string) bool { return slices.Contains(l.kinds(), kind) }

// mayLead reports why this replica must not lead yet on top of a journal: objects may own addresses that it cannot count.
func (l *Ledger) mayLead(ctx context.Context, source Source, r journal.Record) error {
	l.find(source, r)
	for _, kind := range slices.Sorted(maps.Keys(l.claimed)) {
		why := errUnknownKind
		if l.counts(kind) {
			if why = source.Reading(kind).Denied; why == nil { // since a moment ago
				continue
			}
		} else {
			switch stored, err := source.Stored(ctx, kind); {
			case err != nil:
				why = fmt.Errorf("%w, and: %w", why, err)
			case stored:
				return fmt.Errorf("objects of %s are stored, and %w: nothing is granted, since they may own addresses. Run the release that serves them, or delete them", kind, why)
			default:
				continue
			}
		}
		if !l.claimed.outlived(time.Now(), kind, r.Seen[kind], l.cfg.GrantLife) {
			return fmt.Errorf("objects of %s may own addresses and cannot be counted: %w. Without a change addresses are granted from %s on, theirs among them",
				kind, why, l.claimed[kind].since.Add(l.cfg.GrantLife).UTC().Format(time.RFC3339))
		}
		l.cfg.Log.Info("Objects that cannot be read are not counted: their addresses may be given again", "resource", kind, "reason", why.Error())
	}
	return nil
}

// look updates which kinds can be read, and reports what needs attention.
func (l *Ledger) look(source Source) {
	denied := map[string]error{}
	for _, kind := range l.kinds() {
		denied[kind] = source.Reading(kind).Denied
	}
	stored := map[string]int{}
	l.do(func(b *book) {
		for kind, err := range denied {
			b.deny(l.now(), kind, err)
		}
		for kind := range b.unserved {
			stored[kind] = 0
			if b.serving {
				stored[kind] = b.stored[kind]
			}
		}
	})
	l.cfg.Metrics.uncounted(stored, denied)
	for _, text := range l.Warnings() {
		kind, _, _ := strings.Cut(text, ":")
		if l.isNewsWithin(kind, "", remindEvery) {
			l.cfg.Log.Info("Needs attention", "what", text)
		}
	}
}

// Warnings lists what does not keep this replica from serving and needs attention: kinds that cannot be read, and owners of APIs that are switched off.
// Each begins with the name of the kind.
func (l *Ledger) Warnings() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind, d := range l.book.denied {
		list = append(list, fmt.Sprintf("%s: the API server denies reading it, nothing is allocated for it, and what was last seen of it counts: %v", kind, d.err))
	}
	for kind := range l.book.unserved {
		if n := l.book.stored[kind]; n > 0 {
			list = append(list, fmt.Sprintf("%s: its API is switched off, and what is stored of it counts all the same (%s): switch the API on, or delete what is stored, whose finalizers nothing removes meanwhile", kind, allocator.Counted(n, "object")))
		}
	}
	if !l.recordsDenied.IsZero() {
		list = append(list, "configmaps: the API server denies reading what is recorded of ranges in other clusters: grant the manager the rights of its Role")
	}
	for _, err := range l.book.faults {
		list = append(list, fmt.Sprintf("configmaps: a pool allocates nothing: %v", err))
	}
	slices.Sort(list)
	return list
}
