package feed

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/informers"
)

// resource describes how objects of one resource are read and applied to the ledger.
type resource struct {
	store      toolscache.Store
	synced     toolscache.DoneChecker
	readAccess func() (absent bool, denied error) // of the informer; nil for an informer that is not optional
	denied     error                              // why the last live read was denied; nil after a live read that succeeded
	empty      func() client.Object
	newList    func() client.ObjectList

	observe func(client.Object)
	// remove gets the resourceVersion of the deletion. If the watch missed the deletion,
	// it gets the version of the last event of the object, or 0.
	remove func(o client.Object, resourceVersion uint64)
	// replace gets all objects of the resource.
	replace func([]client.Object)
	// read is the version of the newest live read of all objects; the store may be
	// behind.
	read uint64

	// fence implements ledger.Source.FenceWrites.
	fence func(ctx context.Context, k ledger.Key, uid string) (resourceVersion uint64, err error)
	claim func(client.Object) ledger.Claim // nil for pools
	// record records an event before it is applied to the ledger, see Claims.Record; nil
	// for pools and address objects.
	record func(before, after client.Object)
}

// Claims describes a resource of claims, or of address objects.
type Claims struct {
	Resource string
	// Served is true if the API is switched on. The objects of an API that is switched
	// off own their addresses nevertheless.
	Served  bool
	Empty   func() client.Object
	NewList func() client.ObjectList
	Convert func(client.Object) ledger.Claim
	// Record is called before an event is applied to the ledger, except for the objects
	// of the first list: before is nil for a new object, after for a deleted object. It
	// may be nil.
	Record func(before, after client.Object)
	// Fence implements ledger.Source.FenceWrites. It is nil if no client writes an
	// address to a stored object: then no fence is needed.
	Fence func(ctx context.Context, k ledger.Key, uid string) (resourceVersion uint64, err error)
}

// AddClaims registers with the informer of a resource of claims. The manager must not
// have started.
func (f *Feed) AddClaims(c Claims) error {
	r := &resource{
		empty: c.Empty, newList: c.NewList, claim: c.Convert, fence: c.Fence, record: c.Record,
		observe: func(o client.Object) { f.ledger.ObserveClaim(c.Convert(o)) },
		remove: func(o client.Object, version uint64) {
			f.ledger.RemoveClaim(c.Convert(o), version)
			f.requestMoveDecisions()
		},
		replace: func(all []client.Object) {
			defer f.requestMoveDecisions()
			listed := make([]ledger.ListedClaim, len(all))
			for i, o := range all {
				listed[i] = ledger.ListedClaim{UID: string(o.GetUID()), ResourceVersion: object.ResourceVersion(o), Convert: func() ledger.Claim { return c.Convert(o) }}
			}
			f.ledger.ReplaceClaims(c.Resource, listed)
		},
	}
	if r.fence == nil {
		r.fence = func(ctx context.Context, k ledger.Key, uid string) (uint64, error) {
			return f.readVersion(ctx, k, uid, c.Empty())
		}
	}
	return f.addResource(c.Resource, c.Served, r)
}

// Pools describes a resource of pools.
type Pools struct {
	Resource string
	// Served is true if the API is switched on.
	Served  bool
	Empty   func() client.Object
	NewList func() client.ObjectList
	// Convert converts the pool for the ledger. A pool that breaks a rule offers nothing;
	// the status of the pool reports the rule.
	Convert func(client.Object) ledger.Pool
}

// AddPools registers with the informer of a resource of pools. The manager must not have
// started.
func (f *Feed) AddPools(p Pools) error {
	return f.addResource(p.Resource, p.Served, &resource{
		empty: p.Empty, newList: p.NewList,
		observe: func(o client.Object) { f.ledger.ObservePool(p.Convert(o)) },
		remove:  func(o client.Object, version uint64) { f.ledger.RemovePool(p.Convert(o).Key, version) },
		replace: func(all []client.Object) {
			pools := make([]ledger.Pool, len(all))
			for i, o := range all {
				pools[i] = p.Convert(o)
			}
			f.ledger.ReplacePools(p.Resource, pools)
		},
		fence: func(ctx context.Context, k ledger.Key, _ string) (uint64, error) {
			return f.readVersion(ctx, k, "", p.Empty()) // an update of a pool is a request of its own, and ends with that request
		},
	})
}

// readVersion reads an object from the API server into o and returns its resourceVersion:
// 0 if no object, or no object with this UID ("" for any), is stored.
func (f *Feed) readVersion(ctx context.Context, k ledger.Key, uid string, o client.Object) (uint64, error) {
	if err := f.live.Get(ctx, Request(k).NamespacedName, o); err != nil || uid != "" && string(o.GetUID()) != uid {
		return 0, client.IgnoreNotFound(err)
	}
	return object.ResourceVersion(o), nil
}

func (f *Feed) addResource(name string, served bool, r *resource) error {
	informer, err := f.mgr.GetCache().GetInformer(f.ctx, r.empty(), cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("informer for %s: %w", name, err)
	}
	stored, ok := informer.(interface{ GetStore() toolscache.Store })
	if !ok {
		return fmt.Errorf("informer for %s: %T has no store", name, informer)
	}
	if optional, ok := informer.(*informers.Optional); ok {
		r.readAccess = optional.ReadAccess
	}
	r.store = stored.GetStore()
	handler, err := informer.AddEventHandler(f.eventHandler(r))
	if err != nil {
		return fmt.Errorf("informer for %s: %w", name, err)
	}
	r.synced = handler.HasSyncedChecker()
	f.resources[name] = r
	if served {
		f.served = append(f.served, name)
	}
	return nil
}

// eventHandler applies the events of one resource.
func (f *Feed) eventHandler(r *resource) toolscache.ResourceEventHandler {
	withLock := func(apply func()) {
		f.mu.Lock()
		defer f.mu.Unlock()
		apply()
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, isInFirstList bool) {
			withLock(func() {
				if !isInFirstList {
					r.recordEvent(nil, o.(client.Object))
				}
				r.observe(o.(client.Object))
			})
		},
		UpdateFunc: func(before, after any) {
			was, is := before.(client.Object), after.(client.Object)
			withLock(func() {
				if was.GetUID() != is.GetUID() { // deleted and created again while the watch was broken
					r.recordEvent(was, nil)
					r.remove(was, 0)
					was = nil
				}
				r.recordEvent(was, is)
				r.observe(is)
			})
		},
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj // the last version that the watch delivered: older than the deletion
			}
			deleted, ok := o.(client.Object)
			if !ok {
				return
			}
			withLock(func() {
				r.recordEvent(deleted, nil)
				r.remove(deleted, object.ResourceVersion(deleted))
			})
		},
	}
}

// recordEvent calls record, if there is one.
func (r *resource) recordEvent(before, after client.Object) {
	if r.record != nil {
		r.record(before, after)
	}
}

func (r *resource) appliedVersion() uint64 {
	return object.ParseVersion(r.store.LastStoreSyncResourceVersion())
}

// StoredObjects returns the objects of a resource in the store of its informer.
func (f *Feed) StoredObjects(name string) []client.Object {
	if r := f.resources[name]; r != nil {
		return r.storedObjects()
	}
	return nil
}

// storedObjects returns the objects in the informer's store.
func (r *resource) storedObjects() []client.Object {
	var all []client.Object
	for _, o := range r.store.List() {
		all = append(all, o.(client.Object))
	}
	return all
}

func (f *Feed) findResource(name string) (*resource, error) {
	if r := f.resources[name]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("resource %s is not served by this replica", name)
}
