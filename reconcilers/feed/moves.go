package feed

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"butlerlabs.dev/ipam/reconcilers/clusters"
)

const (
	retryMoves      = 250 * time.Millisecond // first pause after a decision that could not be made
	retryMovesLimit = 30 * time.Second
)

// requestMoveDecisions requests that DecideMoves decides again. It never blocks.
func (f *Feed) requestMoveDecisions() {
	select {
	case f.undecided <- struct{}{}:
	default:
	}
}

// DecideMoves decides, until ctx ends, whether deleted claims that were marked as moved
// were moved to another cluster.
func (f *Feed) DecideMoves(ctx context.Context, watcher *clusters.Watcher, log logr.Logger) error {
	pause := retryMoves
	for {
		var retry <-chan time.Time
		if f.decideMoves(ctx, watcher, log) {
			pause = retryMoves
		} else {
			retry = time.After(pause)
			pause = min(2*pause, retryMovesLimit)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.undecided:
		case <-retry:
		}
	}
}

// decideMoves decides all moves that can be decided now, and reports whether no undecided
// move is left.
func (f *Feed) decideMoves(ctx context.Context, watcher *clusters.Watcher, log logr.Logger) (all bool) {
	undecided := f.ledger.UndecidedMoves() // before the Clusters are read: each of these claims was marked before the read
	all = true
	known := map[string]clusters.Pauses{}
	for _, d := range undecided {
		p, read := known[d.Namespace]
		if !read {
			var err error
			if p, err = watcher.Pauses(ctx, f.live, d.Namespace); err != nil {
				log.Error(err, "Addresses of objects marked as moved to another cluster are not released until their Clusters can be read", "namespace", d.Namespace)
				p = clusters.Pauses{}
			}
			known[d.Namespace] = p
		}
		moved, certain := p.WereMoved(d.Clusters)
		if !certain {
			all = false
			continue
		}
		if !moved {
			log.Info("An object was marked as moved to another cluster while none of its Clusters was paused: its addresses are released", "namespace", d.Namespace, "uid", d.UID)
		}
		f.ledger.DecideMoved(d.UID, moved)
	}
	return all
}
