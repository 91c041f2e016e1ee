package reconcilers

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/addressobjects"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/history"
	"butlerlabs.dev/ipam/reconcilers/pools"
)

// API is the claims and pools of one API group.
type API interface {
	// Resources lists the counted resources: of its claims and address objects, and of
	// its pools.
	Resources() (claims, pools []string)
	// addQueues adds the queues of its claims and pools.
	addQueues(*feed.Changes)
	// objectsByResource returns an empty object of each resource.
	objectsByResource() map[string]client.Object
	scope() meta.RESTScope
	// addResources registers its claims, address objects and pools with the informers;
	// served reports whether the API is switched on.
	addResources(f *feed.Feed, mgr manager.Manager, recorder *history.Recorder, served bool) error
	register(ctx context.Context, mgr manager.Manager, o Options) error
	// collect lists the pools, and counts the claims in conflict.
	collect(ctx context.Context, informers client.Reader, l *ledger.Ledger) (pools []collectedPool, conflicts int, err error)
}

// apiAdapter implements API for claims T and pools P.
type apiAdapter[T, P client.Object] struct {
	claimResource, poolResource string // poolResource is "" if the API has no pools
	claimName, poolName         string // of the controllers
	newClaims                   func() claims.Adapter[T]
	pools                       pools.Adapter[P]     // nil if the API has no pools
	addresses                   *addressobjects.Kind // nil if the claims have no address objects
	wholeStatus                 bool                 // see claims.Config
	clusterScoped               bool                 // the objects have no namespace
	workers                     int                  // of the controller of the claims
}

// Resources implements API.
func (a *apiAdapter[T, P]) Resources() (claims, pools []string) {
	claims = []string{a.claimResource}
	if a.addresses != nil {
		claims = append(claims, a.addresses.Resource)
	}
	if a.poolResource != "" {
		pools = []string{a.poolResource}
	}
	return claims, pools
}

func (a *apiAdapter[T, P]) objectsByResource() map[string]client.Object {
	all := map[string]client.Object{a.claimResource: a.newClaims().NewObject()}
	if a.addresses != nil {
		all[a.addresses.Resource] = a.addresses.Empty()
	}
	if a.poolResource != "" {
		all[a.poolResource] = a.pools.NewObject()
	}
	return all
}

func (a *apiAdapter[T, P]) scope() meta.RESTScope {
	if a.clusterScoped {
		return meta.RESTScopeRoot
	}
	return meta.RESTScopeNamespace
}

// Objects returns an empty object of each resource of some APIs.
func Objects(apis ...API) (all []runtime.Object) {
	for _, a := range apis {
		for _, o := range a.objectsByResource() {
			all = append(all, o)
		}
	}
	return all
}

// NewMapper returns a mapper of the resources of some APIs, whether the API server serves
// these resources now or not.
func NewMapper(scheme *runtime.Scheme, apis ...API) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper(nil)
	for _, a := range apis {
		for name, object := range a.objectsByResource() {
			gvk, err := apiutil.GVKForObject(object, scheme)
			if err != nil {
				return nil, err
			}
			resource := schema.ParseGroupResource(name).WithVersion(gvk.Version)
			m.AddSpecific(gvk, resource, gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)), a.scope())
		}
	}
	return m, nil
}

// NewFeed registers with the informers of a manager that has not started, for the APIs
// switched on and for the APIs switched off: stored objects own their addresses in either
// case.
//
// The recorder records the allocations and releases of the claims of all these APIs.
func NewFeed(ctx context.Context, mgr manager.Manager, l *ledger.Ledger, recorder *history.Recorder, on, off []API) (*feed.Feed, error) {
	f := feed.New(ctx, mgr, l)
	for _, a := range on {
		if err := a.addResources(f, mgr, recorder, true); err != nil {
			return nil, err
		}
	}
	for _, a := range off {
		if err := a.addResources(f, mgr, recorder, false); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (a *apiAdapter[T, P]) addResources(f *feed.Feed, mgr manager.Manager, recorder *history.Recorder, served bool) error {
	api := a.newClaims()
	convert := func(o client.Object) ledger.Claim { return api.ToClaim(o.(T)) }
	recorder.AddClaims(history.Claims{
		Resource: a.claimResource, Convert: convert, Stored: func() []client.Object { return f.StoredObjects(a.claimResource) },
	})
	err := f.AddClaims(feed.Claims{
		Resource: a.claimResource, Served: served,
		Empty: func() client.Object { return api.NewObject() }, NewList: api.NewList,
		Convert: convert,
		Record:  func(before, after client.Object) { recorder.Observe(before, after, convert) },
		Fence: func(ctx context.Context, k ledger.Key, uid string) (uint64, error) {
			return api.FenceWrites(ctx, mgr.GetClient(), mgr.GetAPIReader(), k, uid)
		},
	})
	if err != nil {
		return err
	}
	if a.addresses != nil {
		err := f.AddClaims(feed.Claims{Resource: a.addresses.Resource, Served: served, Empty: a.addresses.Empty, NewList: a.addresses.NewList, Convert: a.addresses.Convert})
		if err != nil {
			return err
		}
	}
	if a.poolResource == "" {
		return nil
	}
	return f.AddPools(feed.Pools{
		Resource: a.poolResource, Served: served,
		Empty: func() client.Object { return a.pools.NewObject() }, NewList: a.pools.NewList,
		Convert: func(o client.Object) ledger.Pool { pool, _ := a.pools.ToPool(o.(P)); return pool },
	})
}

// NewChanges returns the queues of some APIs, for the ledger's Config.Changed and for
// Register.
func NewChanges(apis ...API) *feed.Changes {
	c := feed.NewChanges()
	for _, a := range apis {
		a.addQueues(c)
	}
	return c
}

func (a *apiAdapter[T, P]) addQueues(c *feed.Changes) {
	c.AddQueues(a.claimResource, a.poolResource, kinds.ForResource(a.claimResource).Pools)
}

// newPool returns an empty object of a pool resource from which the claims request
// addresses; nil for any other resource.
func (a *apiAdapter[T, P]) newPool(resource string) client.Object {
	if !slices.Contains(kinds.ForResource(a.claimResource).Pools, resource) {
		return nil
	}
	return kinds.ForResource(resource).New().(client.Object)
}

func (a *apiAdapter[T, P]) collect(ctx context.Context, informers client.Reader, l *ledger.Ledger) (pools []collectedPool, conflicts int, err error) {
	bounded, _ := any(a.pools).(interface{ IsListFull(P) bool })
	inConflict := func(uid string) bool { return l.OwnershipOf(uid).Conflict != nil }
	if conflicts, err = claims.CountConflicts(ctx, informers, a.newClaims(), inConflict); err != nil || a.poolResource == "" {
		return nil, conflicts, err
	}
	all := a.pools.NewList()
	if err := informers.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, err
	}
	err = meta.EachListItem(all, func(o runtime.Object) error {
		p := o.(P)
		pools = append(pools, collectedPool{
			ledger.Key{Resource: a.poolResource, Namespace: p.GetNamespace(), Name: p.GetName()}, bounded != nil && bounded.IsListFull(p),
		})
		return nil
	})
	return pools, conflicts, err
}
