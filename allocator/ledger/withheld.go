package ledger

import (
	"cmp"
	"fmt"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// Ranges that an update of a pool removes are withheld from the update's admission until the update is observed or cannot be stored any more.

// withheldOf describes the first address of a pool that is withheld; nil where none is.
func (b *book) withheldOf(p *pool) *HeldError {
	var first *HeldError
	isOffered := allocator.Touching(p.Window)
	for _, l := range b.lines {
		if !l.withdraws() || l.Space != p.Space {
			continue
		}
		for _, r := range l.Ranges {
			if first != nil && r.First.Compare(first.Range.First) > 0 || !isOffered([]allocator.Range{r}) {
				continue
			}
			if e := (&HeldError{Range: r, Holder: l.holding.key, Withheld: true, Until: b.withheldUntil(l.holding)}); first == nil || e.before(first) {
				first = e
			}
		}
	}
	return first
}

// before orders withheld ranges by address, the longer ones first.
func (e *HeldError) before(o *HeldError) bool {
	return cmp.Or(e.Range.First.Compare(o.Range.First), o.Until.Compare(e.Until), o.Range.Last.Compare(e.Range.Last), cmp.Compare(e.Holder.coreName(), o.Holder.coreName())) < 0
}

// withheldUntil is when withheld ranges are free again if no update that removes them is observed, by the clock of recorded times; zero where a commit of
// the journal is awaited.
func (b *book) withheldUntil(h *holding) (until time.Time) {
	for _, l := range h.lines {
		if l.answered.IsZero() {
			return time.Time{}
		}
		if end := l.answered.Add(b.limits.life); end.After(until) {
			until = end
		}
	}
	return until.Add(b.recordsAhead)
}

// withheldText says which range is withheld, why, and until when.
func withheldText(r allocator.Range, pool string, until time.Time) string {
	text := fmt.Sprintf("%s is withheld, as an update of %s that removes it was admitted and is not observed yet", r, pool)
	if until.IsZero() {
		return text
	}
	return text + ": if the update is not stored, it is free again at " + until.UTC().Format(time.RFC3339)
}
