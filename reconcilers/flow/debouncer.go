package flow

import (
	"sync"
	"time"

	"butlerlabs.dev/ipam/allocator/ledger"
)

// Debouncer delivers keys together: those that arrive within a delay after the first key.
// In a burst, a timer and a goroutine for each key would take processor time from the
// creates that produce the keys.
type Debouncer struct {
	Delay   time.Duration
	Deliver func(ledger.Key)

	mu   sync.Mutex
	keys map[ledger.Key]struct{} // nil if none wait
}

// Add adds the wanted keys.
func (g *Debouncer) Add(keys []ledger.Key, wanted func(ledger.Key) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range keys {
		if !wanted(k) {
			continue
		}
		if g.keys == nil {
			g.keys = map[ledger.Key]struct{}{}
			time.AfterFunc(g.Delay, g.flush)
		}
		g.keys[k] = struct{}{}
	}
}

func (g *Debouncer) flush() {
	g.mu.Lock()
	keys := g.keys
	g.keys = nil
	g.mu.Unlock()
	for k := range keys {
		g.Deliver(k)
	}
}
