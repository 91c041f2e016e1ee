// Package feed connects the informers, the ledger and the reconcilers: Feed applies every
// stored pool and claim to the ledger and serves the live reads of the ledger; Changes
// queues the claims and pools that the ledger reports as changed.
//
//	informers ──▶ Feed ──▶ ledger ──▶ Changes ──▶ queues of the reconcilers
//
// Feed and Changes are safe for concurrent use.
package feed

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/movedrecords"
)

// catchUpPoll is the pause between two checks whether the informers have caught up with a
// live read.
const catchUpPoll = time.Second

// Feed applies every stored pool and claim to a ledger, as the informers show them, and
// is the ledger's Source.
type Feed struct {
	ledger    *ledger.Ledger
	mgr       manager.Manager
	live      client.Reader
	mapper    meta.RESTMapper
	resources map[string]*resource // name ->
	served    []string             // names of the resources of APIs that are switched on

	ctx context.Context // of the process

	movedRecords *movedrecords.Store
	undecided    chan struct{} // signals that claims are gone that may have been moved

	// mu orders the informers' events and the whole copies of Refresh: an object from an
	// event after the copy was taken must not be missing when the copy is applied.
	mu sync.Mutex

	denials sync.Mutex // guards resource.denied
}

var _ ledger.Source = (*Feed)(nil)

// New returns a Feed without resources. The process ends with ctx.
func New(ctx context.Context, mgr manager.Manager, l *ledger.Ledger) *Feed {
	return &Feed{
		ledger: l, mgr: mgr, live: mgr.GetAPIReader(), mapper: mgr.GetRESTMapper(), resources: map[string]*resource{}, ctx: ctx, undecided: make(chan struct{}, 1),
	}
}

// Synced waits until at least one served resource is readable, and the ledger has
// observed every object of the readable resources that was stored when the manager
// started. It returns false if ctx ends first.
func (f *Feed) Synced(ctx context.Context) bool {
	var checks []toolscache.DoneChecker
	for _, r := range f.resources {
		checks = append(checks, r.synced)
	}
	if !toolscache.WaitFor(ctx, "", checks...) {
		return false
	}
	for f.servesNothing() {
		if journal.Pause(ctx, catchUpPoll) != nil {
			return false
		}
	}
	return true
}

// AppliedVersion implements ledger.Source.
func (f *Feed) AppliedVersion(name string) uint64 {
	r := f.resources[name]
	if r == nil {
		return 0
	}
	return r.appliedVersion()
}

// Refresh implements ledger.Source.
func (f *Feed) Refresh(ctx context.Context, name string, live bool) error {
	r, err := f.findResource(name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !live {
		r.replace(r.storedObjects())
		return nil
	}
	all, version, err := f.listLive(ctx, r)
	switch {
	case isAbsent(err):
		r.replace(nil)
		return nil
	case err != nil:
		return err
	}
	r.replace(all)
	r.read = max(r.read, version)
	go f.awaitInformer(r)
	return nil
}

// awaitInformer applies the informer's store to the ledger when the store has passed the
// version of the live read: deletions before that version have no event.
func (f *Feed) awaitInformer(r *resource) {
	caughtUp := func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.appliedVersion() < r.read {
			return false, nil
		}
		r.replace(r.storedObjects())
		return true, nil
	}
	_ = wait.PollUntilContextCancel(f.ctx, catchUpPoll, true, caughtUp) // fails only at the end of the process
}
