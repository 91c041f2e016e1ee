package claims

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/clusters"
	"butlerlabs.dev/ipam/reconcilers/events"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// Config has the dependencies of the reconcilers of one API.
type Config struct {
	Client   client.Client // reads from the informers, writes to the API server
	Live     client.Reader // reads from the API server
	Ledger   *ledger.Ledger
	Clusters *clusters.Watcher
	Queues   *feed.Queues
	Events   *events.Recorder
	Now      func() time.Time // clock that measures durations
	Wall     func() time.Time // clock of the times in statuses and records
	// NewPool returns an empty object of a pool resource from which the claims request
	// addresses; nil for any other resource.
	NewPool func(resource string) client.Object
	// MirrorPacer spaces the writes of statuses that repeat the create response.
	MirrorPacer *flow.Pacer
	// WholeStatus is true if no other client writes a claim's status and the Go type
	// knows every field. The status is written whole, which costs the API server less
	// than a patch.
	WholeStatus bool
	// Released is called before the finalizer of a claim is removed, with the claim.
	Released func(client.Object)
	// OrphanAge is how long a dependent object stays without its claim.
	OrphanAge time.Duration
}

// Deps has the dependencies of the reconcilers of one API, and the state that these
// reconcilers share. It is safe for concurrent use.
type Deps struct {
	Config
	*write.Writer
	expected       *flow.Expectations
	claimBackoff   *flow.Backoff // of writes for claims
	waitingBackoff *flow.Backoff // of writes by the reconcilers of a pool: allocations of waiting claims, and finalizers of released claims
}

// secondTry is the pause before the second attempt to serve a waiting claim: each attempt
// costs a commit of the journal, and a grant that stays open for its life if the outcome
// of the write is unknown.
const secondTry = time.Second

// NewDeps returns the dependencies of the reconcilers of one API.
func NewDeps(c Config) *Deps {
	return &Deps{
		Config: c, Writer: write.NewWriter(c.Client, c.Live),
		expected: flow.NewExpectations(), claimBackoff: flow.NewBackoff(flow.FirstPause), waitingBackoff: flow.NewBackoff(secondTry),
	}
}

// HasFailed reports whether the last attempt on a claim has failed.
func (d *Deps) HasFailed(claim client.Object) bool {
	return d.claimBackoff.Failures(client.ObjectKeyFromObject(claim)) > 0
}

// IsStale reports whether a claim from the informers is older than the last recorded
// write to the claim: of an allocation, or the removal of the finalizer.
func (d *Deps) IsStale(claim client.Object) bool { return d.expected.IsStale(claim) }

// SaveStatus writes the status of a claim if the status differs, and reports whether it
// wrote.
func (d *Deps) SaveStatus(ctx context.Context, before, after client.Object) (bool, error) {
	if d.WholeStatus {
		return d.ReplaceStatus(ctx, before, after)
	}
	return d.PatchStatus(ctx, before, after)
}
