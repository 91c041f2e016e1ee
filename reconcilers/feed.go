package reconcilers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/reconcilers/informers"
	"butlerlabs.dev/ipam/reconcilers/records"
)

// settleEvery is how often it is looked whether the informers have caught up with a live read.
const settleEvery = time.Second

// retryEvery is how often a kind is read whose reading was denied.
const retryEvery = 5 * time.Second

// scanPage is how many objects one page of a live read has.
const scanPage = 500

// Feed tells a ledger of every stored pool and claim, as the informers see them, and is the ledger's Source for what it must ask.
type Feed struct {
	ledger *ledger.Ledger
	live   client.Reader
	mapper meta.RESTMapper
	kinds  map[string]*kind // ledger.Key.Kind ->
	served []string         // of these, those of APIs that are switched on

	ctx context.Context // of the process

	records  *records.Store
	departed chan struct{} // that claims are gone, of which some may have been moved

	// mu orders the informers' events and the whole copies that Refresh hands over: an object that an event brought in after the
	// copy was taken must not be missing from it when it arrives.
	mu sync.Mutex

	refusals sync.Mutex // guards kind.refused
}

var _ ledger.Source = (*Feed)(nil)

// kind is how objects of one kind are read, and told to the ledger.
type kind struct {
	store   toolscache.Store
	synced  toolscache.DoneChecker
	reading func() (absent bool, denied error) // of the informer; nil where it only follows
	refused error                              // why a read of its own was denied last, nil where none was since
	empty   func() client.Object
	newList func() client.ObjectList

	observe func(client.Object)
	// forget is told the resourceVersion of the deletion, where it is known.
	forget func(o client.Object, resourceVersion uint64)
	// replace takes all objects of the kind.
	replace func([]client.Object)
	// read is the newest version as of which all objects were read live, which the store may not have come to yet.
	read uint64

	// touch is ledger.Source's.
	touch func(ctx context.Context, k ledger.Key, uid string) (resourceVersion uint64, err error)
	claim func(client.Object) ledger.Claim // of claims only
}

// NewFeed registers with the informers of a manager that has not started, for the APIs that are served.
func NewFeed(ctx context.Context, mgr manager.Manager, l *ledger.Ledger, apis ...API) (*Feed, error) {
	f := &Feed{ledger: l, live: mgr.GetAPIReader(), mapper: mgr.GetRESTMapper(), kinds: map[string]*kind{}, ctx: ctx, departed: make(chan struct{}, 1)}
	for _, a := range apis {
		if err := a.feed(ctx, f, mgr); err != nil {
			return nil, err
		}
	}
	f.served = slices.Collect(maps.Keys(f.kinds))
	return f, nil
}

// Count has the objects of further APIs counted, which are switched off: what is stored owns its addresses all the same.
func (f *Feed) Count(ctx context.Context, mgr manager.Manager, apis ...API) error {
	for _, a := range apis {
		if err := a.feed(ctx, f, mgr); err != nil {
			return err
		}
	}
	return nil
}

func (a *api[T, P]) feed(ctx context.Context, f *Feed, mgr manager.Manager) error {
	if err := f.add(ctx, mgr, a.claimKind, a.claims.empty(), claimsOf(f, a.claimKind, mgr, a.claims)); err != nil {
		return err
	}
	if a.addresses != nil {
		if err := f.add(ctx, mgr, a.addresses.kind, a.addresses.empty(), addressesOf(f, a.addresses)); err != nil {
			return err
		}
	}
	if a.poolKind == "" {
		return nil
	}
	return f.add(ctx, mgr, a.poolKind, a.pools.empty(), poolsOf(f, a.poolKind, a.pools))
}

// addressesOf tells the ledger of objects that hold addresses for claims.
func addressesOf(f *Feed, a *addressKind) *kind {
	return claimKindOf(f, a.kind, a.emptyList, a.claim, func(ctx context.Context, k ledger.Key, uid string) (uint64, error) {
		return f.version(ctx, k, uid, a.empty()) // nothing writes an address to one that is stored
	})
}

// claimsOf tells the ledger of one kind of claims.
func claimsOf[T client.Object](f *Feed, name string, mgr manager.Manager, api claimAPI[T]) *kind {
	claim := func(o client.Object) ledger.Claim { return api.claim(o.(T)) }
	return claimKindOf(f, name, api.emptyList, claim, func(ctx context.Context, k ledger.Key, uid string) (uint64, error) {
		return api.touch(ctx, mgr.GetClient(), mgr.GetAPIReader(), k, uid)
	})
}

func claimKindOf(f *Feed, name string, emptyList func() client.ObjectList, claim func(client.Object) ledger.Claim,
	touch func(context.Context, ledger.Key, string) (uint64, error)) *kind {
	return &kind{
		newList: emptyList,
		claim:   claim,
		observe: func(o client.Object) { f.ledger.Observe(claim(o)) },
		forget: func(o client.Object, version uint64) {
			f.ledger.Forget(name, string(o.GetUID()), version)
			f.lookForDepartures()
		},
		replace: func(all []client.Object) {
			defer f.lookForDepartures()
			listed := make([]ledger.Listed, len(all))
			for i, o := range all {
				listed[i] = ledger.Listed{UID: string(o.GetUID()), ResourceVersion: fields.ResourceVersion(o), Read: func() ledger.Claim { return claim(o) }}
			}
			f.ledger.ReplaceClaims(name, listed)
		},
		touch: touch,
	}
}

// poolsOf tells the ledger of one kind of pools. One that breaks a rule offers nothing; its status says why.
func poolsOf[P client.Object](f *Feed, name string, api poolAPI[P]) *kind {
	pool := func(o client.Object) ledger.Pool { p, _ := api.pool(o.(P)); return p }
	return &kind{
		newList: api.emptyList,
		observe: func(o client.Object) { f.ledger.SetPool(pool(o)) },
		forget:  func(o client.Object, version uint64) { f.ledger.RemovePool(pool(o).Key, version) },
		replace: func(all []client.Object) {
			pools := make([]ledger.Pool, len(all))
			for i, o := range all {
				pools[i] = pool(o)
			}
			f.ledger.ReplacePools(name, pools)
		},
		touch: func(ctx context.Context, k ledger.Key, _ string) (uint64, error) {
			return f.version(ctx, k, "", api.empty()) // a change of a pool is a request like a create, and ends with it
		},
	}
}

// version reads an object, into o, and gives its resourceVersion: 0 where there is none, or not with this UID. Any will do where that is "".
func (f *Feed) version(ctx context.Context, k ledger.Key, uid string, o client.Object) (uint64, error) {
	if err := f.live.Get(ctx, request(k).NamespacedName, o); err != nil || uid != "" && string(o.GetUID()) != uid {
		return 0, client.IgnoreNotFound(err)
	}
	return fields.ResourceVersion(o), nil
}

func (f *Feed) add(ctx context.Context, mgr manager.Manager, name string, object client.Object, k *kind) error {
	informer, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("informer for %s: %w", name, err)
	}
	stored, ok := informer.(interface{ GetStore() toolscache.Store })
	if !ok {
		return fmt.Errorf("informer for %s: %T shows no store", name, informer)
	}
	if optional, ok := informer.(*informers.Optional); ok {
		k.reading = optional.Reading
	}
	k.store, k.empty = stored.GetStore(), func() client.Object { return object.DeepCopyObject().(client.Object) }
	handler, err := informer.AddEventHandler(f.handler(k))
	if err != nil {
		return fmt.Errorf("informer for %s: %w", name, err)
	}
	k.synced = handler.HasSyncedChecker()
	f.kinds[name] = k
	return nil
}

// handler applies the events of one kind.
func (f *Feed) handler(k *kind) toolscache.ResourceEventHandler {
	locked := func(apply func()) {
		f.mu.Lock()
		defer f.mu.Unlock()
		apply()
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { locked(func() { k.observe(o.(client.Object)) }) },
		UpdateFunc: func(before, after any) {
			was, is := before.(client.Object), after.(client.Object)
			locked(func() {
				if was.GetUID() != is.GetUID() { // deleted and created anew while the watch was away
					k.forget(was, 0)
				}
				k.observe(is)
			})
		},
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj // as last seen: older than the deletion
			}
			gone, ok := o.(client.Object)
			if !ok {
				return
			}
			locked(func() { k.forget(gone, fields.ResourceVersion(gone)) })
		},
	}
}

// Synced waits until the ledger knows everything that was stored when the manager started, of the kinds that can be read: there must be one among those
// that are served. It is false when ctx ends first.
func (f *Feed) Synced(ctx context.Context) bool {
	var checks []toolscache.DoneChecker
	for _, k := range f.kinds {
		checks = append(checks, k.synced)
	}
	if !toolscache.WaitFor(ctx, "", checks...) {
		return false
	}
	for f.servesNothing() {
		if journal.Pause(ctx, settleEvery) != nil {
			return false
		}
	}
	return true
}

// servesNothing reports whether reading each kind that is served is denied.
func (f *Feed) servesNothing() bool {
	for _, name := range f.served {
		if f.Reading(name).Denied == nil {
			return false
		}
	}
	return len(f.served) > 0
}

// Seen implements ledger.Source.
func (f *Feed) Seen(name string) uint64 {
	k := f.kinds[name]
	if k == nil {
		return 0
	}
	return k.seen()
}

func (k *kind) seen() uint64 { return fields.Version(k.store.LastStoreSyncResourceVersion()) }

// Refresh implements ledger.Source.
func (f *Feed) Refresh(ctx context.Context, name string, live bool) error {
	k, err := f.kind(name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !live {
		k.replace(k.stored())
		return nil
	}
	all, version, err := f.list(ctx, k)
	switch {
	case isAbsent(err):
		k.replace(nil)
		return nil
	case err != nil:
		return err
	}
	k.replace(all)
	k.read = max(k.read, version)
	go f.settle(k)
	return nil
}

// isAbsent reports whether the API server does not serve a kind at all.
func isAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// Reading implements ledger.Source.
func (f *Feed) Reading(name string) (r ledger.Reading) {
	k := f.kinds[name]
	if k == nil {
		return r
	}
	if k.reading != nil {
		r.Absent, r.Denied = k.reading()
	}
	f.refusals.Lock()
	defer f.refusals.Unlock()
	if r.Denied == nil {
		r.Denied = k.refused
	}
	return r
}

// denied records that a read of a kind was denied, while its informer may have a watch that goes on. It tries again until one is not.
func (f *Feed) denied(k *kind, err error) {
	f.refusals.Lock()
	defer f.refusals.Unlock()
	if k.refused == nil {
		go f.retry(k)
	}
	k.refused = err
}

func (f *Feed) retry(k *kind) {
	readable := func(ctx context.Context) (bool, error) {
		err := f.live.List(ctx, k.newList(), client.Limit(1))
		if err != nil && !isAbsent(err) {
			return false, nil
		}
		f.refusals.Lock()
		defer f.refusals.Unlock()
		k.refused = nil
		return true, nil
	}
	_ = wait.PollUntilContextCancel(f.ctx, retryEvery, false, readable) // its only error is the end of the process
}

// Stored implements ledger.Source.
func (f *Feed) Stored(ctx context.Context, name string) (bool, error) {
	gvk, err := f.mapper.KindFor(schema.ParseGroupResource(name).WithVersion(""))
	if isAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	if err := f.live.List(ctx, list, client.Limit(1)); err != nil {
		return false, ignoreAbsent(err)
	}
	return len(list.Items) > 0, nil
}

func ignoreAbsent(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}

// stored is the local copy.
func (k *kind) stored() []client.Object {
	var all []client.Object
	for _, o := range k.store.List() {
		all = append(all, o.(client.Object))
	}
	return all
}

// settle hands the local copy over once it has passed what was read live: what was gone before it came that far has no event.
func (f *Feed) settle(k *kind) {
	passed := func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if k.seen() < k.read {
			return false, nil
		}
		k.replace(k.stored())
		return true, nil
	}
	_ = wait.PollUntilContextCancel(f.ctx, settleEvery, true, passed) // its only error is the end of the process
}

// Any implements ledger.Source.
func (f *Feed) Any(ctx context.Context) (bool, error) {
	unknown := false
	for name, k := range f.kinds {
		list := k.newList()
		err := f.live.List(ctx, list, client.Limit(1))
		switch {
		case apierrors.IsForbidden(err):
			unknown = true
		case ignoreAbsent(err) != nil:
			return false, fmt.Errorf("%s: %w", name, err)
		case meta.LenList(list) > 0:
			return true, nil
		}
	}
	return unknown, nil
}

// list reads from the API server, consistently: the first page is of the latest state, whose resourceVersion it gives, the others are of the same.
func (f *Feed) list(ctx context.Context, k *kind, options ...client.ListOption) (all []client.Object, version uint64, err error) {
	page := &client.ListOptions{Limit: scanPage}
	for {
		list := k.newList()
		if err := f.live.List(ctx, list, append(options, page)...); err != nil {
			if apierrors.IsForbidden(err) {
				f.denied(k, err)
			}
			return nil, 0, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, o.(client.Object))
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		if page.Continue = list.GetContinue(); page.Continue == "" {
			return all, fields.Version(list.GetResourceVersion()), nil
		}
	}
}

func (f *Feed) kind(name string) (*kind, error) {
	if k := f.kinds[name]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("kind %s is not served by this replica", name)
}
