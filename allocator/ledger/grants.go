package ledger

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// breaks are ways to break the protocol, for the model check to find. All are off in a real ledger. (Others of the model's breaks
// lie in what it does around the book.)
type breaks struct {
	shareToken       bool // a range asked for again goes out under its old token
	answerFromMemory bool // a range asked for again goes out without a commit
	noHeir           bool // an object that stands in for a claim does not take its range over
	coverByName      bool // a claim covers every object that stands in for its name, whatever range that holds
	freeAway         bool // the range of a claim that went to another cluster is free here
	absenceFrees     bool // a pool without its list of such ranges frees them
}

// grants says why nothing is granted to a request now, whatever it asks for; nil where something may be.
func (b *book) grants(q Request) error {
	switch {
	case !b.serving:
		return errNotHolding
	case b.quarantined:
		return &NotServingError{Reason: "an earlier journal was lost: waiting until every grant it may have held has ended", RetryAfter: 5 * time.Second, Here: true}
	case b.denied[q.Claim.Kind].err != nil:
		return b.denied[q.Claim.Kind].notServing(q.Claim.Kind)
	case b.denied[q.Pool.Kind].err != nil:
		return b.denied[q.Pool.Kind].notServing(q.Pool.Kind)
	case b.behind(q.UID, q.Version):
		return errBehind
	}
	return b.full(q.Claim.Namespace, ordinaryLine)
}

// grant takes a range for the request. The line it returns waits for the next commit.
func (b *book) grant(now time.Time, q Request) (*line, error) {
	if err := b.grants(q); err != nil {
		return nil, err
	}
	p, err := b.poolFor(q)
	if err != nil {
		return nil, err
	}
	if len(b.lacking(q)) == 0 { // it has them all: there is nothing to commit
		return &line{Line: journal.Line{Token: b.newToken(), Space: p.Space}, state: open, answered: now}, nil
	}
	h := b.repeatable(p, q)
	if h == nil {
		if h, err = b.take(p, q); err != nil {
			return nil, err
		}
	} else if b.breaks.shareToken && len(h.lines) > 0 {
		return h.lines[0], nil
	} else if b.breaks.answerFromMemory && len(h.lines) > 0 {
		l := b.addLine(h, q)
		l.state, l.answered = open, now
		b.queued--
		return l, nil
	}
	return b.addLine(h, q), nil
}

// full returns why the journal has no room for a line of so many bytes: grants and withheld ranges of a namespace share a part of it.
func (b *book) full(namespace string, size int) error {
	reason := "the journal is full of open grants"
	switch {
	case b.inScope[namespace].bytes >= b.limits.share:
		whose := "namespace " + namespace + " has its"
		if namespace == "" {
			whose = "cluster-scoped objects have their"
		}
		reason = whose + " share of open grants and withheld ranges: creates, and updates of pools, that fail keep theirs for " + b.limits.life.String()
	case b.bytes+size <= b.limits.bytes:
		return nil
	}
	return &NotServingError{Reason: reason, RetryAfter: time.Second, Here: true}
}

func (b *book) addLine(h *holding, q Request) *line {
	l := &line{holding: h, Line: journal.Line{
		Token:     b.newToken(),
		Space:     h.space,
		Ranges:    h.ranges,
		Kind:      q.Claim.Kind,
		Namespace: q.Claim.Namespace,
		NameHash:  journal.HashName(q.Claim.Name),
	}}
	if q.UID != "" {
		l.Stored, l.UID, l.over = q.Claim.Name, q.UID, q.Version
	}
	b.queued++
	b.file(l)
	return l
}

func (b *book) file(l *line) {
	b.lines[l.Token] = l
	l.holding.lines = append(l.holding.lines, l)
	b.account(l, 1)
}

// ordinaryLine is about what an open grant takes in the journal, in bytes.
const ordinaryLine = 32

// account adds a line to what the journal holds, or takes it off. Its first line brings the name of a namespace, and that of a routing domain once
// for each namespace: whose share it counts in, wherever else it stands.
func (b *book) account(l *line, sign int) {
	s, in := b.inScope[l.Namespace], domain{l.Namespace, l.Space}
	size := l.Size()
	if s.lines+min(sign, 0) == 0 {
		size += len(l.Namespace) + 1
	}
	if b.inDomain[in]+min(sign, 0) == 0 {
		size += len(l.Space) + 1
	}
	if b.inDomain[in] += sign; b.inDomain[in] == 0 {
		delete(b.inDomain, in)
	}
	s.lines += sign
	s.bytes += sign * size
	b.bytes += sign * size
	if s.lines == 0 {
		delete(b.inScope, l.Namespace)
	} else {
		b.inScope[l.Namespace] = s
	}
}

// retire ends a grant. Whoever waits for it is told that it came to nothing, and to ask again.
func (b *book) retire(l *line) {
	if b.lines[l.Token] != l {
		return
	}
	delete(b.lines, l.Token)
	if l.state == queued {
		b.queued--
	}
	if l.done != nil {
		l.done <- &NotServingError{Reason: "what it rests on has changed meanwhile"}
		l.done = nil
	}
	h := l.holding
	h.lines = slices.DeleteFunc(h.lines, func(o *line) bool { return o == l })
	b.account(l, -1)
	b.wanted = b.wanted || l.state == open
	b.freeIfIdle(h)
}

// withdraw ends a grant whose answer never left. While it is part of a commit under way it stays until that is over.
func (b *book) withdraw(l *line) {
	if b.lines[l.Token] != l { // it has ended already, or takes nothing
		return
	}
	l.done = nil
	if l.state == inFlight {
		l.dropped = true
		return
	}
	b.retire(l)
}

// begin starts a commit: what it is to hold.
func (b *book) begin() journal.Record {
	b.begun++
	b.wanted, b.queued = false, 0
	b.asked, b.asking = nil, append(b.asking, b.asked...)
	r := journal.Record{Quarantine: b.quarantined, Seen: make(map[string]uint64, len(b.seen)), Lines: make([]journal.Line, 0, len(b.lines))}
	promised := map[string]bool{} // kinds with lines
	for _, l := range b.lines {
		if b.denied[l.Kind].outlived { // nothing is known of its object
			continue
		}
		if l.state == queued {
			l.state = inFlight
		}
		promised[l.Kind] = true
		r.Lines = append(r.Lines, l.Line)
	}
	for k, v := range b.seen {
		switch known := promised[k] || b.stored[k] > 0 && !b.denied[k].outlived; {
		case known && b.unserved[k]:
			r.Unserved = append(r.Unserved, k)
		case b.unserved[k]: // who serves it takes the journal
			continue
		case !known:
			v = 0 // a new holder has nothing to wait for
		}
		r.Seen[k] = v
	}
	slices.Sort(r.Unserved)
	return r
}

// landed takes in that the commit begun last is stored: its grants may be answered now.
func (b *book) landed(now time.Time) {
	b.ended = b.begun
	b.tell(nil)
	for _, l := range b.lines {
		if l.state == inFlight {
			l.state, l.answered = open, now
			if l.done != nil {
				l.done <- nil
				l.done = nil
			}
			if l.dropped {
				b.retire(l)
			}
		}
	}
	rest := b.unconfirmed[:0]
	for _, c := range b.unconfirmed {
		if c.bound < b.ended {
			b.changed[c.Key] = struct{}{}
		} else {
			rest = append(rest, c)
		}
	}
	clear(b.unconfirmed[len(rest):])
	b.unconfirmed = rest
}

// takeOver makes the book that of the journal's new holder: what the version it fenced holds is open, and is nobody's to grant
// again. It grants only after serve.
func (b *book) takeOver(v journal.Version) {
	b.dropLines()
	b.begun, b.ended, b.wanted = 0, 0, true
	b.quarantined = v.Quarantine
	seen := b.withTokens(v.Lines)
	lines := slices.Clone(v.Lines)
	slices.SortFunc(lines, func(x, y journal.Line) int { return bytes.Compare(x.Token[:], y.Token[:]) })
	for _, jl := range lines {
		l := &line{Line: jl.Clone(), state: open}
		if c := seen[l.Token]; c != nil && b.spaceOf(c) == l.Space && l.spentBy(c) {
			c.granted = true // seen already
			continue
		}
		if len(l.Ranges) == 0 { // an earlier release wrote such lines
			continue
		}
		b.inherit(l)
	}
}

// withTokens finds the claims that have a range and carry the token of one of the lines: token -> claim.
func (b *book) withTokens(lines []journal.Line) map[journal.Token]*claim {
	found := make(map[journal.Token]*claim, len(lines))
	for _, l := range lines {
		found[l.Token] = nil
	}
	for _, c := range b.claims {
		if _, asked := found[c.Token]; asked && (c.holding != nil || b.covering(c) != nil) && !c.Token.IsZero() {
			found[c.Token] = c
		}
	}
	return found
}

// inherit files a line of an earlier holder of the journal.
func (b *book) inherit(l *line) {
	s := b.space(l.Space)
	for held := range s.core.HeldIn(l.Ranges[0]) { // who has one of several ranges has them all
		h := b.holdings[held.Holder]
		if h.inherited && h.claim == nil && len(h.lines) > 0 && slices.Equal(h.ranges, l.Ranges) && h.lines[0].sameClaim(l) ||
			h.claim != nil && slices.Equal(h.ranges, l.Ranges) && l.names(h.claim.Key, h.claim.UID) && l.NameHash != 0 {
			l.holding = h
			b.file(l)
			return
		}
	}
	h := b.newHolding(l.object(), Key{}, l.Space, l.Ranges...)
	h.inherited = true
	l.holding = h
	b.file(l)
	b.place(h)
}

func (l *line) sameClaim(o *line) bool {
	return l.Kind == o.Kind && l.Namespace == o.Namespace && l.NameHash == o.NameHash && l.NameHash != 0 && l.UID == o.UID
}

// serve lets the book grant. The life of inherited grants starts anew. Claims that may want something done are brought up: those with a
// range by the commit that confirms it, the others now.
func (b *book) serve(now time.Time) {
	b.serving, b.served, b.settled = true, now, false
	for _, l := range b.lines {
		l.answered = now
	}
	for _, c := range b.claims {
		c.bound = 0
		switch {
		case c.holding == nil:
			b.changed[c.Key] = struct{}{}
		case !c.Ready || c.Deleting || c.holding.contested:
			b.unconfirmed = append(b.unconfirmed, c)
		}
	}
}

// stepDown makes the book a follower's: it still sees claims, but its grants are for the next holder to keep.
func (b *book) stepDown() {
	b.serving = false
	b.unconfirmed = nil
	b.dropLines()
}

func (b *book) dropLines() {
	for _, l := range b.lines {
		if l.done != nil {
			l.done <- &NotServingError{Reason: "another replica took the journal over"}
			l.done = nil
		}
		b.retire(l)
	}
	b.wanted, b.queued = false, 0
	b.asked, b.asking = nil, append(b.asking, b.asked...)
	b.tell(&NotServingError{Reason: "another replica took the journal over"})
}

// tell answers those who wait for the commit under way.
func (b *book) tell(err error) {
	for _, done := range b.asking {
		done <- err
	}
	b.asking = nil
}

// ask waits for a commit that begins from now on: done gets its outcome.
func (b *book) ask(done chan<- error) error {
	if !b.serving {
		return errNotHolding
	}
	b.asked = append(b.asked, done)
	return nil
}

// stopping refuses further grants; what is queued still goes into the last commit.
func (b *book) stopping() { b.serving = false }

// granted reports whether a claim about to be stored carries what an open grant says, beside what the stored claim has already.
func (b *book) granted(k Key, uid string, version uint64, ranges []allocator.Range, t journal.Token) error {
	if !b.serving {
		return errNotHolding
	}
	if b.behind(uid, version) {
		return errBehind
	}
	l := b.lines[t]
	fresh := slices.DeleteFunc(slices.Clone(ranges), func(r allocator.Range) bool { return b.has(uid, r) })
	if len(fresh) == 0 {
		return nil
	}
	if l == nil {
		return ErrNoGrant
	}
	if l.state != open || !l.names(k, uid) || !slices.Equal(l.Ranges, fresh) {
		return ErrForged
	}
	if uid == "" && l.NameHash != 0 { // validation comes after all that may name the object otherwise; what the API server names it may name again
		l.final = k.Name
	}
	return nil
}

// due lists the grants whose life has passed, but those whose object is yet to be seen as it is since then.
func (b *book) due(now time.Time) []*line {
	var out []*line
	for _, l := range b.lines {
		if l.state != open || now.Sub(l.answered) < b.limits.life || now.Before(l.due) || !b.mayEnd(l) {
			continue
		}
		if l.outlived > 0 && now.Sub(l.touched) >= b.limits.life { // what its object was then will not be seen: etcd was restored
			l.outlived = 0
		}
		if b.sees(l) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(x, y *line) int { return cmp.Or(x.due.Compare(y.due), bytes.Compare(x.Token[:], y.Token[:])) })
	return out
}

// sees tells whether the object of a grant that can come to nothing more is known as it is since then. In the middle of a list an object may be
// unknown still though newer ones are not.
func (b *book) sees(l *line) bool {
	c, p := b.claims[l.UID], b.pools[l.object()]
	switch {
	case c != nil:
		return c.ResourceVersion >= l.outlived
	case p != nil:
		return p.ResourceVersion >= l.outlived && !p.ahead
	default:
		return b.seen[l.Kind] >= l.outlived
	}
}

// object is the stored claim or pool that a grant is to.
func (l *line) object() Key { return Key{Kind: l.Kind, Namespace: l.Namespace, Name: l.Stored} }

// outlive takes note of the version of its object since which a grant can come to nothing more, 0 where that is gone. What it came to before has been
// seen when that version is, or the deletion is; so it is known to whoever takes the journal over without the grant.
func (b *book) outlive(now time.Time, l *line, version uint64) {
	l.outlived, l.touched = version, now
	if version == 0 && b.claims[l.UID] == nil && b.pools[l.object()] == nil {
		b.end(l)
	}
}

// end retires a grant whose life has passed, unless its claim turned up.
func (b *book) end(l *line) {
	if b.serving {
		b.retire(l)
	}
}

// read takes in which stored claims have the token of a grant whose life has passed, by UID: it ends where there is none whose event is yet to come.
func (b *book) read(l *line, shown []string) {
	l.shown = shown
	if b.allSeen(shown) {
		b.end(l)
	}
}

func (b *book) allSeen(uids []string) bool {
	return !slices.ContainsFunc(uids, func(uid string) bool { return b.claims[uid] == nil })
}

// tick ends rests and quarantine, on every replica, and forgets pools that have no event and routing domains that somebody only asked for.
func (b *book) tick(now time.Time) {
	if b.serving && b.quarantined && now.Sub(b.served) >= b.limits.life {
		b.quarantined, b.wanted = false, true
	}
	b.outlast(now)
	clear(b.restSums)
	for k, rests := range b.resting {
		crowded := b.crowded(k)
		for h := range rests {
			if !now.Before(h.until) {
				b.endRest(h)
			}
		}
		if crowded && !b.crowded(k) {
			b.leavingMay(k)
		}
		b.restSums[k] = b.sumRests(k)
	}
	b.dropGhosts(now)
	maps.DeleteFunc(b.spaces, func(_ string, s *space) bool { return s.core.Idle() })
}
