package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// leeway defines which creates may fail under the faults of a run.
type leeway int

const (
	// nothingFails: no create may fail. Managers only terminate gracefully.
	nothingFails leeway = iota
	// onTheWire: faults affect managers. Calls under way to an affected manager may fail,
	// at most one per client and fault.
	onTheWire
	// anythingFails: any create may fail, because faults affect the API server, etcd or
	// another webhook, or there is only one manager. Only in this case all managers are
	// affected at the same time.
	anythingFails
)

func (o *options) leeway() leeway {
	least := nothingFails
	if o.replicas == 1 {
		return anythingFails
	}
	for _, fault := range o.faults {
		switch {
		case slices.Contains(gracefulFaults, fault), fault == losePool, fault == flood:
		case slices.Contains(managerFaults, fault):
			least = onTheWire
		default:
			return anythingFails
		}
	}
	return least
}

// verdict is what a history comes to.
type verdict struct {
	*history
	broken []string
	byID   map[string]*call

	creates, ok, failed, refused, overlaps, lateFlagged int

	poolsLost                int
	withoutPool, unallocated int // creates while their pool was absent; those of them that were stored without all their ranges
	restoredWithoutPool      int // claims that were restored before their pool

	gap      time.Duration  // the longest for which creates waited and none was given anything
	gapAfter time.Duration  // when it began, since the first call
	failures map[string]int // kind -> how often
}

// judge holds a history against the promises.
func (h *history) judge(l leeway) *verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := &verdict{history: h, broken: slices.Concat(h.broken, h.stored.broken), byID: map[string]*call{}, failures: map[string]int{}}
	for _, c := range h.calls {
		v.byID[c.id] = c
	}
	v.count()
	v.judgeOverlaps()
	v.judgeFlags()
	v.judgeMoves()
	v.judgePartial()
	v.judgeCalls()
	v.judgePairs()
	v.judgeFailures(l)
	return v
}

func (v *verdict) blame(format string, args ...any) {
	v.broken = append(v.broken, fmt.Sprintf(format, args...))
}

func (v *verdict) count() {
	for _, a := range v.absences {
		if a.lost {
			v.poolsLost++
		}
	}
	for _, c := range v.calls {
		if failed(c.err) {
			v.failures[kind(c.err)]++
		}
		if !c.dryRun && c.err == nil && v.poolAbsent(c) {
			v.withoutPool++
			if c.wrong(false) != "" {
				v.unallocated++
			}
			if c.restored {
				v.restoredWithoutPool++
			}
		}
		if c.dryRun {
			continue
		}
		v.creates++
		switch {
		case failed(c.err):
			v.failed++
		case c.err != nil:
			v.refused++
		default:
			v.ok++
		}
	}
	if len(v.calls) > 0 {
		gap, began := longestGap(v.calls)
		v.gap, v.gapAfter = gap, began.Sub(v.calls[0].began)
	}
}

// longestGap returns the longest time for which creates waited and none was given
// anything, and when it began. Time in which no create was under way does not count.
func longestGap(calls []*call) (gap time.Duration, began time.Time) {
	type change struct {
		at      time.Time
		waiting int // 1 for a create that begins, -1 for one that ends
		given   bool
	}
	var changes []change
	for _, c := range calls {
		if !c.dryRun {
			changes = append(changes, change{at: c.began, waiting: 1}, change{at: c.ended, waiting: -1, given: c.err == nil})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	var (
		waiting     int
		waited      time.Duration
		last, since time.Time
	)
	for i, c := range changes {
		if waiting > 0 {
			waited += c.at.Sub(last)
		}
		if i == 0 {
			since = c.at
		}
		if waited > gap {
			gap, began = waited, since
		}
		waiting, last = waiting+c.waiting, c.at
		if c.given {
			waited, since = 0, c.at
		}
	}
	return gap, began
}

// answered tells whether the create that made an object was answered with it. A manager's
// create counts where the object became Ready before it was flagged: one that is stored
// late is flagged first.
func (v *verdict) answered(o *object) bool {
	if v.madeByManager(o) {
		return o.readyFirst
	}
	c := v.byID[o.call]
	return c != nil && c.err == nil && c.uid == o.uid
}

// judgeOverlaps: where two had an address at the same time, one was stored after its
// create had failed, and is flagged or gone.
func (v *verdict) judgeOverlaps() {
	late := map[*object]bool{}
	for _, p := range v.stored.overlaps {
		switch {
		case v.answered(p.a) && v.answered(p.b):
			v.overlaps++
			v.blame("%s and %s overlap from revision %d on, and both creates were answered", p.a, p.b, p.from)
			continue
		case p.a.deleted == 0 && p.b.deleted == 0 && !p.a.flagged && !p.b.flagged:
			v.blame("%s and %s overlap from revision %d on, and neither is flagged", p.a, p.b, p.from)
		}
		late[p.a], late[p.b] = true, true
	}
	for o := range late {
		if o.everFlagged {
			v.lateFlagged++
		}
	}
}

// judgeFlags: a claim of the load that is flagged as in conflict has an address of
// another claim of the load, or of a claim in another cluster. A claim that was stored
// while its pool was absent names addresses that it does not own yet, and others may own.
func (v *verdict) judgeFlags() {
	explained := map[*object]bool{}
	for _, p := range v.stored.overlaps {
		explained[p.a], explained[p.b] = true, true
	}
	for _, t := range v.stored.trespasses {
		explained[t.by] = true
	}
	for _, o := range v.stored.objects {
		if c := v.byID[o.call]; c != nil && o.everFlagged && !explained[o] && v.answered(o) && !v.poolAbsent(c) {
			v.blame("%s was flagged, and nobody else had an address of it", o)
		}
	}
}

// judgePartial: a claim is stored with its whole answer, unless its pool was absent.
func (v *verdict) judgePartial() {
	for _, o := range v.stored.partial {
		if !v.poolAbsent(v.byID[o.call]) {
			v.blame("%s was created at revision %d without its range, its token or its finalizer", o.name, o.created)
		}
	}
}

// judgeCalls: an answer is what was asked for and what is stored; a refusal leaves
// nothing, as does a dry run; nothing else is stored.
func (v *verdict) judgeCalls() {
	named := map[string]bool{}
	for _, o := range v.stored.objects {
		named[o.name] = true
		if v.byID[o.call] == nil && !v.madeByManager(o) {
			v.blame("%s is of no call that was made", o)
		}
	}
	for _, c := range v.calls {
		absent := v.poolAbsent(c)
		if wrong := c.wrong(absent); wrong != "" {
			v.blame("%s: %s", c, wrong)
		}
		made := v.stored.of[c.id]
		switch {
		case c.dryRun:
			if len(made) > 0 {
				v.blame("%s was a dry run and left %s", c, made[0])
			}
		case c.err == nil:
			if o := v.stored.objects[c.uid]; o == nil {
				v.blame("%s was answered with %s and never stored", c, c.owned)
			} else if o.owned != c.owned && !(absent && o.owned.complete(c.owned)) {
				v.blame("%s was answered with %s, stored is %s", c, c.owned, o)
			}
		case refused(c.err) && !c.open && len(made) > 0:
			v.blame("%s was refused and left %s: %v", c, made[0], c.err)
		case apierrors.IsAlreadyExists(c.err) && !named[c.name]:
			v.blame("%s was refused, as if its name were taken, and nothing of that name was ever stored: %v", c, c.err)
		}
	}
}

// judgePairs: a dry run ends as the call in earnest does, unless somebody else's webhook
// refuses one of the two.
func (v *verdict) judgePairs() {
	for _, p := range v.pairs {
		if p.dry.refusedByOther() || p.earnest.refusedByOther() {
			continue
		}
		if dry, earnest := p.dry.outcome(), p.earnest.outcome(); dry != earnest {
			v.blame("%s, a dry run, was %s; %s, the same in earnest, was %s", p.dry, dry, p.earnest, earnest)
		}
	}
}

// judgeFailures: what failed, the faults allow.
func (v *verdict) judgeFailures(l leeway) {
	if l == anythingFails {
		return
	}
	paid := map[cost]bool{}
	for _, c := range slices.SortedFunc(slices.Values(v.calls), func(a, b *call) int { return a.ended.Compare(b.ended) }) {
		if !failed(c.err) {
			continue
		}
		if l == nothingFails {
			v.blame("%s failed, while managers only ended in good order: %v", c, c.err)
			continue
		}
		needed, by := faultsFor(kind(c.err)), v.explain(c, paid)
		if needed == 0 {
			v.blame("%s failed, which no fault of a manager explains while another is well: %v", c, c.err)
			continue
		}
		if len(by) < needed {
			v.blame("%s failed, which takes %d faults at least, and its client had %d left that explain it: %v", c, needed, len(by), c.err)
			continue
		}
		for _, b := range by[:needed] {
			paid[cost{b, c.client}] = true
		}
	}
}

// faultsFor is how many managers must be hurt at a time for a failure of a kind, 0 where
// that does not explain it. A validating call is made only once; a mutating one again, of
// another entry.
func faultsFor(kind string) int {
	switch kind {
	case validatingCall:
		return 1
	case mutatingCall:
		return 2
	default:
		return 0
	}
}

// cost is a failure that a client puts down to a fault: each explains one.
type cost struct {
	*blow
	client int
}

// explain finds the faults of different managers that may have cost a call and are not
// paid for: the one that is over first comes first, as those that last may have to
// explain a later failure.
func (v *verdict) explain(c *call, paid map[cost]bool) (by []*blow) {
	hit := map[string]bool{}
	for _, b := range slices.SortedFunc(slices.Values(v.blows), func(a, b *blow) int { return a.end().Compare(b.end()) }) {
		if b.during(c) && !paid[cost{b, c.client}] && !hit[b.manager()] {
			hit[b.manager()] = true
			by = append(by, b)
		}
	}
	return by
}

// manager is the one that a fault hits, itself or what it stands on.
func (b *blow) manager() string { return b.target[strings.LastIndex(b.target, " ")+1:] }

// end is when a fault was over; those that are not come last.
func (b *blow) end() time.Time {
	if b.over.IsZero() {
		return b.began.Add(time.Hour)
	}
	return b.over
}

// during tells whether a process suffered while a call was made.
func (b *blow) during(c *call) bool {
	return !b.began.After(c.ended) && !c.began.After(b.over)
}

// String says how often creates failed, by kind, and ends with the line of figures.
func (v *verdict) summary(leaks int, takeovers int64) string {
	var b strings.Builder
	for _, kind := range slices.SortedFunc(maps.Keys(v.failures), func(a, b string) int { return cmp.Compare(v.failures[b], v.failures[a]) }) {
		fmt.Fprintf(&b, "failed %d times: %s\n", v.failures[kind], kind)
	}
	fmt.Fprintf(&b, "%d dry runs compared with the same call in earnest\n", len(v.pairs))
	fmt.Fprintf(&b, "%d creates while their pool was absent, %d of them without their ranges, %d of them restored claims\n", v.withoutPool, v.unallocated, v.restoredWithoutPool)
	fmt.Fprintf(&b, "lost and restored: %d Services after their ProxyVIP, %d before it, %d without it, %d ProxyVIPs alone; %d of them not seen with addresses in %s\n",
		v.vipFirst, v.serviceFirst, v.serviceOnly, v.vipOnly, v.unsettled, serviceLimit)
	fmt.Fprintf(&b, "creates waited longest after %.1fs: for %.1fs none was given anything\n", v.gapAfter.Seconds(), v.gap.Seconds())
	fmt.Fprintf(&b, "creates=%d ok=%d failed=%d refused=%d overlaps=%d leaks=%d late_flagged=%d max_gap_s=%.1f takeovers=%d pools_lost=%d services=%d services_lost=%d",
		v.creates, v.ok, v.failed, v.refused, v.overlaps, leaks, v.lateFlagged, v.gap.Seconds(), takeovers, v.poolsLost, v.made, v.lost)
	return b.String()
}
