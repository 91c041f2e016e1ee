package main

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/work"
)

// latecomer is the API whose CRDs Cluster API brings, which may be installed after the manager. Until then its claims are nobody's; then each replica
// ends, to be started again and serve it. Those that follow end first, one of them takes the journal when it is back, since it counts more kinds,
// and the one that had it ends last: calls find somebody all the time.
type latecomer struct {
	apis   // it alone, or none where it is not switched on
	server discovery.ServerResourcesInterface
	log    logr.Logger
}

const (
	// latecomerPoll is the time between two looks at what the API server serves, holderPoll at who holds the journal.
	latecomerPoll = 5 * time.Second
	holderPoll    = 100 * time.Millisecond
	// lastLimit is for how long the holder of the journal waits for another to take it: there may be none.
	lastLimit = 20 * time.Second
)

// without is the APIs that are switched on, without this one where it has yet to come.
func (c *latecomer) without(switchedOn apis) (apis, error) {
	missing, err := c.missing(c.server)
	if err != nil || len(missing) == 0 {
		return switchedOn, err
	}
	c.log.Info("Cluster API is not installed, or is older than 1.11: its claims are served when it is", "missing", missing)
	return switchedOn.except(clusterAPI), nil
}

// awaited ends a replica when the API has come.
func (c *latecomer) awaited(l *ledger.Ledger, end context.CancelFunc) work.Everywhere {
	return func(ctx context.Context) error {
		for served := false; !served; {
			if journal.Pause(ctx, latecomerPoll) != nil {
				return nil
			}
			missing, err := c.missing(c.server) // an API server that does not answer is asked again
			served = err == nil && len(missing) == 0
		}
		for last := time.Now().Add(lastLimit); l.Serving() && time.Now().Before(last); {
			if journal.Pause(ctx, holderPoll) != nil {
				return nil
			}
		}
		c.log.Info("Cluster API is there: ending, to serve its claims when started again")
		end()
		return nil
	}
}
