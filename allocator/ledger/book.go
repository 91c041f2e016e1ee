package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// book is the state behind a Ledger. It has no clock, does no I/O and takes no locks.
type book struct {
	limits   limits
	newToken func() journal.Token
	breaks   breaks

	spaces   map[string]*space             // routing domain ->
	pools    map[Key]*pool                 // pool ->
	offers   map[*allocator.Pool]Key       // a pool, or its part of one family ->
	claims   map[string]*claim             // UID -> every stored claim, answered or not
	standIns map[Key][]*claim              // claim, stored or not -> the objects that hold a range for it
	ofPool   map[Key]map[*claim]struct{}   // pool, known or not -> stored claims that have a range of it
	barred   map[Key]map[*claim]struct{}   // pool, known or not -> stored claims that name ranges of it which are not theirs (yet)
	holdings map[allocator.Holder]*holding // every range that is not free
	byName   map[Key][]*holding            // claim -> what it holds or is granted
	byCall   map[string]*holding           // admission request of an unnamed claim -> its open grant
	lines    map[journal.Token]*line       // the open grants
	inScope  map[string]scope              // namespace -> its open grants
	inDomain map[domain]int                // -> the open grants there
	bytes    int                           // that the open grants take in the journal
	seen     map[string]uint64             // kind -> resourceVersion of the last event applied
	stored   map[string]int                // kind -> claims or pools that are stored
	unserved map[string]bool               // kinds that are counted while their API is switched off
	denied   map[string]denial             // kinds that the API server refuses to show
	changed  map[Key]struct{}              // claims and pools whose standing may have changed, for the reconcilers
	resting  map[Key]map[*holding]struct{} // pool -> holdings of its ranges with an end of rest
	restSums map[Key]restSum               // pool -> what rests of it, as of the last tick
	records  map[Key]Record                // pool -> what is stored of its ranges that went to other clusters
	faults   map[string]error              // UID of a pool -> why its record cannot be read
	departed map[string]*holding           // UID of a claim that is gone, marked as moved -> its range, until it is decided whether it was moved
	// recordsAhead is by how much the clock of recorded times is ahead of the book's. All times in the book are by its own clock.
	recordsAhead time.Duration
	lastID       allocator.Holder

	serving     bool      // fenced and caught up: may grant
	served      time.Time // since when
	quarantined bool      // holds the journal, but does not know what an earlier one promised
	settled     bool      // serves for longer than a write of an earlier holder may take to land

	queued       int            // lines that wait for a commit
	begun, ended uint64         // commits of this term that have started, and that have landed
	unconfirmed  []*claim       // bound since the last commit started, or not yet committed; none while not serving
	wanted       bool           // a commit would confirm something
	asked        []chan<- error // who waits for a commit that begins from now on, without a grant of their own
	asking       []chan<- error // who waits for the commit under way
}

// limits bound what a book takes on.
type limits struct {
	life  time.Duration // of a grant, from its last answer
	bytes int           // of the open grants in the journal
	share int           // of those of one namespace
}

// scope is the open grants of one namespace.
type scope struct{ lines, bytes int }

// domain is a routing domain, as one namespace uses it.
type domain struct{ namespace, space string }

// space is one routing domain.
type space struct {
	core      *allocator.Space
	contested map[*holding]struct{} // holdings some of whose addresses others have
}

type pool struct {
	Pool
	exactly
	core     *allocator.Pool         // nil where exact ranges of no certain pool are asked for
	families map[int]*allocator.Pool // bits of an address -> the ranges of that family, core itself where it has no other
	shown    []allocator.Range       // its ranges that are shown one by one, where they have an order; nil for one range
	parts    []*allocator.Pool       // of each of them
	ahead    bool                    // it was read, and its event is yet to come
	overdue  time.Time               // since when later events have come; zero where none have
	observed map[recordID]cooldown   // record of Cooling -> what it came to when it was first observed
}

// exactly is where an exact range is asked for: in a pool, or for claims of no pool in the whole space.
type exactly interface {
	CheckExact(allocator.Range) error
	Exact(allocator.Range, allocator.Holder) error
}

// offered is what of a pool a want may be chosen from, one after the other; where none of them has room, the last says how little the pool has.
func (p *pool) offered(w Want) ([]*allocator.Pool, error) {
	offer, err := p.offer(w)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(p.parts), offer), nil
}

func (p *pool) offer(w Want) (*allocator.Pool, error) {
	family := p.families[w.Bits]
	switch {
	case p.core == nil:
		return nil, &NoPoolError{}
	case p.Manual:
		return nil, &NotAutomaticError{Pool: p.Key}
	case w.Bits == 0:
		return p.core, nil
	case family == nil:
		return nil, &FamilyError{Pool: p.Key, Bits: w.Bits}
	}
	return family, nil
}

// claim is a stored object.
type claim struct {
	Claim
	unserved bool     // its API is switched off
	holding  *holding // nil while unanswered, or barred
	barred   Key      // the pool that what it names is not of, or not yet; zero where it is not barred
	granted  bool     // its token was found in the journal
	// strays: it has addresses that it had not when its status said Ready, and that nobody granted. That it is Ready says nothing of them.
	strays bool
	bound  uint64 // commits begun when it was bound: one that starts later confirms it
	// leaves is when the rest of its range began ahead of its end, zero where it has not; rested says that its pool has recorded it.
	leaves time.Time
	rested bool
	// deleted is when the book observed that the deletion of the claim had begun, zero where it had when the claim was first observed.
	deleted time.Time
}

// holding is a set of ranges that is not free: a claim has it, grants on it are open, or it rests.
type holding struct {
	id        allocator.Holder
	key       Key // of the claim; without a name while the API server generates it
	pool      Key
	space     string
	ranges    []allocator.Range
	claim     *claim
	lines     []*line
	call      string    // admission request of an unnamed claim
	since     time.Time // begin of its rest, zero where that is not known
	until     time.Time // end of its rest, zero where it does not rest
	inherited bool      // granted by an earlier holder of the journal: never granted again
	contested bool      // others have some of its addresses
	shown     uint64    // revision of the first list of its pool that was seen to show it as gone to another cluster, 0 for none
	hidden    uint64    // lists of this revision and earlier ones count as not showing it
	left      string    // UID of the object that went there with it
	clusters  []string  // that this object said it belonged to
}

// line is an open grant.
type line struct {
	journal.Line
	holding  *holding
	state    lineState
	dropped  bool       // nobody waits for it any more: it ends when its commit has landed
	answered time.Time  // when its last answer left
	over     uint64     // resourceVersion of the stored claim that its ranges are written over, 0 where that is not known
	outlived uint64     // resourceVersion of its stored object since which it can come to nothing more, 0 where that is not known
	touched  time.Time  // when that became known
	due      time.Time  // when its stored object is to be written to again, which could not be; zero where nothing has failed
	shown    []string   // UIDs of the stored claims with its token, as read since its life has passed
	final    string     // name of its claim, where no object of another name can come of it; "" where that is not known
	done     chan error // told when the commit that holds the line has landed; buffered; nil where nobody waits
}

// withdraws tells whether it holds back what a pool's change takes away.
func (l *line) withdraws() bool { return l.Stored != "" && l.UID == "" }

type lineState int

const (
	queued   lineState = iota // waits for a commit
	inFlight                  // part of the commit under way
	open                      // committed
)

func newBook(kinds []string, lim limits, newToken func() journal.Token) *book {
	b := &book{
		limits:   lim,
		newToken: newToken,
		spaces:   map[string]*space{},
		pools:    map[Key]*pool{},
		offers:   map[*allocator.Pool]Key{},
		claims:   map[string]*claim{},
		standIns: map[Key][]*claim{},
		ofPool:   map[Key]map[*claim]struct{}{},
		barred:   map[Key]map[*claim]struct{}{},
		holdings: map[allocator.Holder]*holding{},
		byName:   map[Key][]*holding{},
		byCall:   map[string]*holding{},
		lines:    map[journal.Token]*line{},
		inScope:  map[string]scope{},
		inDomain: map[domain]int{},
		seen:     map[string]uint64{},
		stored:   map[string]int{},
		unserved: map[string]bool{},
		denied:   map[string]denial{},
		changed:  map[Key]struct{}{},
		resting:  map[Key]map[*holding]struct{}{},
		restSums: map[Key]restSum{},
		departed: map[string]*holding{},
		records:  map[Key]Record{},
		faults:   map[string]error{},
	}
	for _, k := range kinds {
		b.seen[k] = 0
	}
	return b
}

func (b *book) space(name string) *space {
	s := b.spaces[name]
	if s == nil {
		s = &space{core: allocator.NewSpace(), contested: map[*holding]struct{}{}}
		b.spaces[name] = s
	}
	return s
}

// changedBy marks everything whose standing depends on h: its claim, its pool, and whatever pool offers some of its addresses.
func (b *book) changedBy(h *holding) {
	if h.claim != nil {
		b.changed[h.claim.Key] = struct{}{}
	}
	if h.pool.Name != "" {
		b.changed[h.pool] = struct{}{}
	}
	for _, r := range h.ranges {
		for p := range b.space(h.space).core.Offering(r) {
			b.changed[b.offers[p]] = struct{}{}
		}
	}
}

// newHolding makes a holding of its own for the ranges, without placing it.
func (b *book) newHolding(key, poolKey Key, spaceName string, ranges ...allocator.Range) *holding {
	b.lastID++
	h := &holding{id: b.lastID, key: key, pool: poolKey, space: spaceName, ranges: ranges}
	b.holdings[h.id] = h
	b.name(h, key)
	return h
}

// name files h under the claim's key.
func (b *book) name(h *holding, key Key) {
	b.unname(h)
	h.key = key
	if key.Name != "" {
		b.byName[key] = append(b.byName[key], h)
	}
}

func (b *book) unname(h *holding) {
	if h.key.Name == "" {
		return
	}
	rest := slices.DeleteFunc(b.byName[h.key], func(o *holding) bool { return o == h })
	if len(rest) == 0 {
		delete(b.byName, h.key)
	} else {
		b.byName[h.key] = rest
	}
}

// place takes the holding's addresses, or what others leave it of them.
func (b *book) place(h *holding) {
	s := b.space(h.space)
	clash := false
	for _, r := range h.ranges {
		clash = len(s.core.Hold(r, h.id)) > 0 || clash
	}
	if clash {
		b.settle(h)
	}
	b.changedBy(h)
}

// settle gives each address of h to the strongest of those who want it.
func (b *book) settle(h *holding) {
	s := b.space(h.space)
	group := map[*holding]struct{}{h: {}}
	for _, r := range h.ranges {
		for held := range s.core.HeldIn(r) {
			group[b.holdings[held.Holder]] = struct{}{}
		}
	}
	for o := range s.contested {
		if o.overlaps(h.ranges) {
			group[o] = struct{}{}
		}
	}
	for o := range group {
		for _, r := range o.ranges {
			s.core.Release(r, o.id)
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(group), strongerFirst) {
		clash := false
		for _, r := range o.ranges {
			clash = len(s.core.Hold(r, o.id)) > 0 || clash
		}
		b.setContested(s, o, clash)
		b.changedBy(o)
	}
}

func (b *book) setContested(s *space, h *holding, contested bool) {
	if h.contested && !contested {
		b.rebind(h)
	}
	h.contested = contested
	if contested {
		s.contested[h] = struct{}{}
	} else {
		delete(s.contested, h)
	}
}

// rebind has the next commit confirm h's claim. Where the book does not serve, its next term does that.
func (b *book) rebind(h *holding) {
	if h.claim == nil {
		return
	}
	h.claim.bound = b.begun
	if b.serving {
		b.unconfirmed = append(b.unconfirmed, h.claim)
		b.wanted = true
	}
}

// keys names all claims and pools, pools first, and who has a stand-in.
func (b *book) keys() []Key {
	all := make([]Key, 0, len(b.pools)+len(b.claims))
	for k := range b.pools {
		all = append(all, k)
	}
	for _, c := range b.claims {
		all = append(all, c.Key)
		if c.For != (Key{}) {
			all = append(all, c.For)
		}
	}
	return all
}

// free ends a holding, and lets those who want its addresses have them.
func (b *book) free(h *holding) {
	s := b.space(h.space)
	for _, r := range h.ranges {
		s.core.Release(r, h.id)
		if h.contested { // who has them waited for its rival to be flagged
			for held := range s.core.HeldIn(r) {
				b.changedBy(b.holdings[held.Holder])
			}
		}
	}
	b.changedBy(h)
	b.unname(h)
	delete(b.byCall, h.call)
	delete(b.holdings, h.id)
	b.decided(h)
	b.unrest(h)
	delete(s.contested, h)
	var heirs []*holding
	for o := range s.contested {
		if o.overlaps(h.ranges) {
			heirs = append(heirs, o)
		}
	}
	slices.SortFunc(heirs, strongerFirst)
	for _, o := range heirs {
		b.settle(o)
	}
}

// freeIfIdle ends a holding that nothing stands behind any more.
func (b *book) freeIfIdle(h *holding) {
	if h.claim == nil && len(h.lines) == 0 && h.until.IsZero() {
		b.free(h)
	}
}

func (h *holding) overlaps(ranges []allocator.Range) bool {
	for _, r := range h.ranges {
		if slices.ContainsFunc(ranges, r.Overlaps) {
			return true
		}
	}
	return false
}

// strongerFirst orders holdings by who keeps an address that several want: a claim stored as Ready, then one whose token the
// journal holds or held, then other claims, then ranges at rest, then what a pool's change holds back; among equals the older
// claim, then the smaller UID. Of two that are equally strong that of an API which is switched off comes second.
func strongerFirst(a, o *holding) int {
	if c := cmp.Compare(o.rank(), a.rank()); c != 0 {
		return c
	}
	if c := cmp.Compare(b2i(o.claim != nil), b2i(a.claim != nil)); c != 0 {
		return c
	}
	if a.claim != nil {
		if c := cmp.Compare(b2i(a.claim.unserved), b2i(o.claim.unserved)); c != 0 {
			return c
		}
		if c := a.claim.Created.Compare(o.claim.Created); c != 0 {
			return c
		}
		if c := cmp.Compare(a.claim.UID, o.claim.UID); c != 0 {
			return c
		}
	}
	return cmp.Compare(a.id, o.id)
}

func (h *holding) rank() int {
	switch {
	case h.claim != nil && h.claim.Ready:
		return 3
	case len(h.lines) > 0 && h.lines[0].withdraws():
		return -1
	case len(h.lines) > 0 || h.claim != nil && h.claim.granted:
		return 2
	case h.claim != nil:
		return 1
	default:
		return 0
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
