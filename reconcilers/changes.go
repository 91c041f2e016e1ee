package reconcilers

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/work"
)

// Changes hands what the ledger says has changed to the reconcilers. What comes before they run waits for them. A key that waits
// already takes no further room, so the size is bounded by the number of objects.
type Changes struct {
	byClaim map[string]*lane      // kind of claim ->
	byPool  map[string][]*lane    // kind of pool -> those whose claims draw from it
	pools   map[string]work.Queue // kind of pool ->

	soon, settled gathering // of what has changed itself, and of pools for the claims that wait for them
	repeated      repeated
}

// repeated is the pools for whose claims attempts are repeated just now. What those take of a pool is given back in a moment where they fail again: the
// pool's counters need not be written twice for that.
type repeated struct{ since sync.Map } // pool -> time

// repeatedLimit is how long the counters wait at most.
const repeatedLimit = time.Second

func (r *repeated) begin(pool ledger.Key) { r.since.Store(pool, time.Now()) }

func (r *repeated) end(pool ledger.Key) { r.since.Delete(pool) }

func (r *repeated) under(pool ledger.Key) bool {
	since, under := r.since.Load(pool)
	return under && time.Since(since.(time.Time)) < repeatedLimit
}

// lane is the queues of the claims of one kind: of themselves, and of the pools that some of them wait for.
type lane struct {
	claims  work.Queue
	pending map[string]work.Queue  // kind of pool ->
	pools   work.Queue             // of the API's own pools, nil where it has none
	wake    func(namespace string) // has all its claims looked at; nil before it is registered
}

// wait has the claims that wait for a pool looked at.
func (l *lane) wait(pool ledger.Key) {
	if q := l.pending[pool.Kind]; q != nil {
		q.Add(request(pool))
	}
}

// NewChanges makes the queues of some APIs, for the ledger's Config.Changed and for Register.
func NewChanges(apis ...API) *Changes {
	c := &Changes{byClaim: map[string]*lane{}, byPool: map[string][]*lane{}, pools: map[string]work.Queue{}}
	c.soon = gathering{delay: gather, hand: c.look}
	c.settled = gathering{delay: settle, hand: c.retry}
	for _, a := range apis {
		a.lanes(c)
	}
	return c
}

func (a *api[T, P]) lanes(c *Changes) {
	l := &lane{claims: work.NewQueue(a.claimKind), pending: map[string]work.Queue{}}
	for _, kind := range a.draws() {
		l.pending[kind] = work.NewQueue("pending " + a.claimKind + " " + kind)
		c.byPool[kind] = append(c.byPool[kind], l)
	}
	if a.poolKind != "" {
		l.pools = work.NewQueue(a.poolKind)
		c.pools[a.poolKind] = l.pools
	}
	c.byClaim[a.claimKind] = l
}

// Notify takes keys of any kind; it never blocks.
func (c *Changes) Notify(keys []ledger.Key) {
	c.soon.add(keys, func(k ledger.Key) bool { return c.byClaim[k.Kind] != nil || c.pools[k.Kind] != nil })
	c.settled.add(keys, func(k ledger.Key) bool { return c.byPool[k.Kind] != nil })
}

// look has a claim or a pool looked at.
func (c *Changes) look(k ledger.Key) {
	if l := c.byClaim[k.Kind]; l != nil {
		l.claims.Add(request(k))
	}
	if q := c.pools[k.Kind]; q != nil {
		q.Add(request(k))
	}
}

// wake has all claims of a namespace looked at that may draw from a kind of pool.
func (c *Changes) wake(poolKind, namespace string) {
	for _, l := range c.byPool[poolKind] {
		if l.wake != nil {
			l.wake(namespace)
		}
	}
}

// retry has the claims that wait for a pool looked at.
func (c *Changes) retry(pool ledger.Key) {
	for _, l := range c.byPool[pool.Kind] {
		l.wait(pool)
	}
}

// How long changes gather before they are looked at.
const (
	// gather leaves the moment after a change to the create that made it, whose answer is still on the way, and lets the changes of other
	// creates share it.
	gather = 20 * time.Millisecond
	// settle is for the claims that wait for a pool: each of its changes makes them ask the ledger anew.
	settle = 50 * time.Millisecond
)

// gathering hands keys on together: those that come within a delay after the first of them. In a burst, what is done for each key by itself
// (a timer, and a goroutine that is woken for it) would take the processors from the creates that bring the keys.
type gathering struct {
	delay time.Duration
	hand  func(ledger.Key)

	mu   sync.Mutex
	keys map[ledger.Key]struct{} // nil where none wait
}

// add takes the keys that are wanted.
func (g *gathering) add(keys []ledger.Key, wanted func(ledger.Key) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range keys {
		if !wanted(k) {
			continue
		}
		if g.keys == nil {
			g.keys = map[ledger.Key]struct{}{}
			time.AfterFunc(g.delay, g.flush)
		}
		g.keys[k] = struct{}{}
	}
}

func (g *gathering) flush() {
	g.mu.Lock()
	keys := g.keys
	g.keys = nil
	g.mu.Unlock()
	for k := range keys {
		g.hand(k)
	}
}

func request(k ledger.Key) (r reconcile.Request) {
	r.Namespace, r.Name = k.Namespace, k.Name
	return r
}
