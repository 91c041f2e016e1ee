package allocator

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// duel plays the same operations on a Space and on the oracle.
type duel struct {
	t      *testing.T
	script []byte // what is left to decode
	space  *Space
	oracle *oracle
	source uint64
}

// play decodes and plays operations until the script ends: its first byte
// chooses the base, every further operation takes a few bytes.
func play(t *testing.T, script []byte) {
	d := &duel{t: t, script: script, space: NewSpace()}
	d.oracle = newOracle(bases[d.below(len(bases))])
	for len(d.script) > 0 && !t.Failed() {
		d.step()
		d.compare()
	}
}

func (d *duel) next() int {
	if len(d.script) == 0 {
		return 0
	}
	b := d.script[0]
	d.script = d.script[1:]
	return int(b)
}

func (d *duel) below(n int) int { return d.next() % n }

func (d *duel) owner() OwnerID { return OwnerID(d.below(8)) }

// stretch is short mostly, sometimes long, often beside the middle, where the
// families meet, seldom reversed.
func (d *duel) stretch() stretch {
	const middle = universe / 2
	first, length := d.next(), d.next()
	switch short := length % 12; {
	case length < 96:
		return stretch{first, min(first+short, universe-1)}
	case length < 128:
		return stretch{middle - 1 - short, middle - 1}
	case length < 160:
		return stretch{middle, middle + short}
	case length < 255:
		return stretch{first, min(first+length, universe-1)}
	}
	return stretch{first, first / 2}
}

func (d *duel) stretches(n int) []stretch {
	var sts []stretch
	for range n {
		sts = append(sts, d.stretch())
	}
	return sts
}

func (d *duel) pool() string { return string(rune('a' + d.below(4))) }

func (d *duel) policy() Policy { return []Policy{BestFit, Sequential}[d.below(2)] }

func (d *duel) same(what string, want, got any) {
	if reflect.DeepEqual(want, got) { // a hundred times faster, and nearly always so
		return
	}
	d.t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(Range{}), cmpopts.EquateEmpty(), equateSentinels); diff != "" {
		d.t.Errorf("%s (-oracle +space):\n%s", what, diff)
	}
}

var equateSentinels = cmp.FilterValues(func(a, b error) bool {
	return a == ErrCount || b == ErrCount || a == ErrNoOwner || b == ErrNoOwner
}, cmp.Comparer(func(a, b error) bool { return a == b }))

func (d *duel) step() {
	o := d.oracle
	switch op := d.below(16); op {
	case 0: // pools come, or change
		var (
			offers []Offer
			before []*Pool
		)
		o.setPools(func(pools map[string]*oraclePool) {
			for range 1 + d.below(4) {
				name, window, blocked := d.pool(), d.stretches(d.below(4)), d.stretches(d.below(3))
				before = append(before, d.space.pools[name])
				offers = append(offers, Offer{name, o.asRanges(window), o.asRanges(blocked)})
				pools[name] = &oraclePool{window: o.declared(window), blocked: o.declared(blocked)}
			}
		})
		for i, p := range d.space.SetPools(offers...) {
			if before[i] != nil && before[i] != p || d.space.pools[offers[i].Name] != p {
				d.t.Error("a resized pool is another one")
			}
		}
	case 1:
		var names []string
		for range 1 + d.below(3) {
			names = append(names, d.pool())
		}
		removed := d.space.pools[names[0]]
		d.space.RemovePools(names...)
		o.setPools(func(pools map[string]*oraclePool) {
			for _, name := range names {
				delete(pools, name)
			}
		})
		if removed != nil {
			d.same("statistics of a removed pool", Stats{}, removed.Stats())
			_, err := removed.Allocate(1, BestFit, 1)
			d.same("allocation from a removed pool", error(&ExhaustedError{Requested: 1}), err)
		}
	case 2, 3:
		st, h := d.stretch(), d.owner()
		d.same("hold", o.hold(st, h), d.space.Assign(o.asRange(st), h))
	case 4: // a comb: many pieces side by side, so that lists need several blocks
		st, step := d.stretch(), 1+d.below(3)
		for i := st.first; i <= st.last; i += step {
			h := OwnerID(1 + i%7)
			d.same("hold one", o.hold(stretch{i, i}, h), d.space.Assign(o.addr(i), h))
		}
	case 5, 6:
		st, h := d.stretch(), d.owner()
		o.release(st, h)
		d.space.Release(o.asRange(st), h)
	case 7:
		st := d.stretch()
		d.same("owned in", o.ownedIn(st), slices.Collect(d.space.OwnedIn(o.asRange(st))))
	default:
		name := d.pool()
		if p := d.space.pools[name]; p != nil {
			d.ask(op, p, o.pools[name])
		}
	}
}

// ask plays an operation on a pool that exists.
func (d *duel) ask(op int, p *Pool, op2 *oraclePool) {
	o, h := d.oracle, d.owner()
	switch op {
	case 8, 9, 10, 11:
		n, policy := int64(d.below(20))-1, d.policy()
		want, wantErr := o.preview(op2, n, policy)
		preview, previewErr := p.Preview(n, policy)
		d.same("preview", want, preview)
		d.same("error of preview", wantErr, previewErr)
		if h == 0 {
			want, wantErr = Range{}, ErrNoOwner
		}
		got, err := p.Allocate(n, policy, h)
		d.same("allocate", want, got)
		d.same("error of allocate", wantErr, err)
		d.oracleTakes(got, h)
	case 12, 13:
		d.random(p, op2, int64(d.below(12)), h)
	case 14, 15:
		st := d.stretch()
		want := o.checkExact(op2, st)
		d.same("check exact", want, p.CheckExact(o.asRange(st)))
		if h == 0 {
			want = ErrNoOwner
		}
		err := p.AllocateExact(o.asRange(st), h)
		d.same("exact", want, err)
		if err == nil {
			o.hold(st, h)
		}
	}
}

// random checks what may be said of any answer: free, usable, of one run, and
// the same from an equal source.
func (d *duel) random(p *Pool, op *oraclePool, n int64, h OwnerID) {
	d.source++
	twin := func() Policy { return Random(rand.New(rand.NewPCG(d.source, 0))) }
	preview, previewErr := p.Preview(n, twin())
	if h == 0 {
		h = 1
	}
	_, wantErr := d.oracle.preview(op, n, BestFit)
	got, err := p.Allocate(n, twin(), h)
	d.same("error of random", wantErr, err)
	d.same("error of random preview", wantErr, previewErr)
	d.same("random preview", preview, got)
	if err != nil {
		return
	}
	st := d.oracle.stretchOf(got)
	if int64(st.last-st.first+1) != n || !slices.ContainsFunc(d.oracle.runs(op), func(run stretch) bool {
		return run.first <= st.first && st.last <= run.last
	}) {
		d.t.Errorf("random answer %v to %d is no part of a free run", got, n)
	}
	d.oracleTakes(got, h)
}

func (d *duel) oracleTakes(got Range, h OwnerID) {
	if got.IsValid() {
		d.oracle.hold(d.oracle.stretchOf(got), h)
	}
}

func (o *oracle) stretchOf(r Range) stretch {
	return stretch{int(numberOf(r.First).minus(o.base).lo), int(numberOf(r.Last).minus(o.base).lo)}
}

// compare looks at everything there is to see, and at the invariants.
func (d *duel) compare() {
	o := d.oracle
	var want, got []Owned
	for _, half := range o.declared([]stretch{{0, o.border - 1}, {o.border, universe - 1}}) {
		want = append(want, o.ownedIn(half)...)
		got = slices.AppendSeq(got, d.space.OwnedIn(o.asRange(half)))
	}
	d.same("all that is owned", want, got)
	for name, op := range o.pools {
		p := d.space.pools[name]
		d.same("statistics", o.stats(op), p.Stats())
		d.same("window", o.asRanges(op.window), p.Window())
		for _, n := range []int64{1, 2, 5} {
			for _, policy := range []Policy{BestFit, Sequential} {
				want, _ := o.preview(op, n, policy)
				got, _ := p.Preview(n, policy)
				d.same("what comes next", want, got)
			}
		}
	}
	checkInvariants(d.t, d.space)
}

func checkInvariants(t *testing.T, s *Space) {
	t.Helper()
	checkList(t, &s.pieces, func(a, b piece) bool {
		return a.last.less(b.first) && !(a.owner == b.owner && a.last.followedBy(b.first))
	})
	for p := range s.pieces.all() {
		if !p.asRange().IsValid() || p.owner == 0 {
			t.Errorf("piece %v", p)
		}
	}
	reach, panes := number{}, 0
	for i, x := range s.panes {
		if i > 0 && x.first.less(s.panes[i-1].first) {
			t.Errorf("pane %d is out of order", i)
		}
		if reach.less(x.last) {
			reach = x.last
		}
		if x.reach != reach {
			t.Errorf("pane %d reaches %v, want %v", i, x.reach, reach)
		}
	}
	for name, p := range s.pools {
		panes += len(p.usable)
		checkList(t, &p.runs, func(a, b span) bool { return bySize(a, b) < 0 })
		free := number{}
		for run := range p.runs.all() {
			free = free.plus(run.size())
		}
		if free != p.free {
			t.Errorf("pool %s has %v free addresses in its runs and counts %v", name, free, p.free)
		}
	}
	if panes != len(s.panes) {
		t.Errorf("%d panes for %d usable spans", len(s.panes), panes)
	}
}

// FuzzSpace compares the space with the oracle after every operation of a
// script of bytes. Scripts are slow to minimise, so that a long run wants
// -fuzzminimizetime 10x.
func FuzzSpace(f *testing.F) {
	source := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		f.Add(randomScript(source, 300))
	}
	f.Fuzz(func(t *testing.T, script []byte) { play(t, script[:min(len(script), 1000)]) })
}

// TestSpace_MatchesTheOracle is the same with scripts from a seed, for every
// run of the tests.
func TestSpace_MatchesTheOracle(t *testing.T) {
	rounds := 100
	if race {
		rounds = 10 // 0.2 s each, ten times as long as without
	}
	source := rand.New(rand.NewPCG(2, 2))
	for range rounds {
		play(t, randomScript(source, 1000))
		if t.Failed() {
			return
		}
	}
}

func randomScript(source *rand.Rand, length int) []byte {
	script := make([]byte, length)
	for i := range script {
		script[i] = byte(source.Uint32())
	}
	return script
}
