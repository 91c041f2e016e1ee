package clusters

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/reconcilers/flow"
)

const (
	// installPoll is the interval of the checks for the CRDs of Cluster API.
	installPoll = 5 * time.Second
	// leaderPoll is the interval of the checks whether this replica still leads.
	leaderPoll = 100 * time.Millisecond
	// takeoverTimeout bounds the wait of a leader for another replica to take over: the
	// leader may be the only replica.
	takeoverTimeout = 20 * time.Second
)

// RestartWhenInstalled returns a runnable that calls end once no CRD of Cluster API is
// missing. Cluster API may be installed after the manager; until then claims of Cluster
// API are not served. Once the CRDs exist each replica ends, and serves the claims after
// its restart. Followers end first: a restarted follower takes over the journal, because
// it counts more kinds. The leader ends after the takeover, so calls always find a
// leader.
func RestartWhenInstalled(missing func() ([]string, error), leads func() bool, end func(), log logr.Logger) flow.OnEveryReplica {
	return func(ctx context.Context) error {
		for installed := false; !installed; {
			if journal.Pause(ctx, installPoll) != nil {
				return nil
			}
			crds, err := missing() // after an error the check is repeated
			installed = err == nil && len(crds) == 0
		}
		for last := time.Now().Add(takeoverTimeout); leads() && time.Now().Before(last); {
			if journal.Pause(ctx, leaderPoll) != nil {
				return nil
			}
		}
		log.Info("Cluster API is installed: ending, to serve its claims after the restart")
		end()
		return nil
	}
}
