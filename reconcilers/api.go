package reconcilers

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/allocator/ledger/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// claimAPI is what the generic path needs to know of one claim API, whose objects are T. What writes to a claim writes to the copy that it
// is given, never to the API server.
type claimAPI[T client.Object] interface {
	empty() T
	emptyList() client.ObjectList
	// claim is what the ledger makes of it.
	claim(T) ledger.Claim
	// unreadable says why the addresses that it has cannot be read, nil where they can or it has none.
	unreadable(T) error
	// held tells whether it has all its addresses, answered by us or not; answered, whether it carries an answer of ours; vouched, whether
	// an earlier allocator says that they are its own, or that others are: these then.
	held(T) bool
	answered(T) bool
	vouched(context.Context, *desk, T) (others []allocator.Range, yes bool, err error)
	// flagged tells whether it is marked as one of whose addresses others have; failed, as one that cannot be given what it asks for.
	flagged(T) bool
	failed(T) bool
	// condition says whether its addresses are its own.
	condition(T) *metav1.Condition
	// rests says why it must be left alone, for now (a *metal3.WaitError) or for ever, going by what these Clusters are; nil where it need not.
	rests(context.Context, *desk, T, metal3.Clusters) error
	// wants is what it asks for, from its pool, which may be missing, and the origin of what it gets; the error is why it gets nothing.
	wants(context.Context, *desk, T) (wants []ledger.Want, origin string, err error)
	// fill writes ranges into the fields of spec that are absent.
	fill(T, []allocator.Range)
	// complete adds what a claim of a space should carry and does not, and tells whether anything was missing.
	complete(T, string) bool
	// allocated, clashing and refused write its status: its addresses are its own, others have some of them, or the ledger refuses what it asks for.
	// allocated may have to make another object first; it is false where the claim comes back for the rest.
	allocated(context.Context, *desk, T) (bool, error)
	clashing(T, string)
	refused(T, []ledger.Want, error)
	// release takes one that is being deleted on its way; gone looks after what one left behind that is no longer there, strays after what another of its
	// name did. They are to be called again after a while, where that is not zero.
	release(context.Context, *desk, T) (time.Duration, error)
	gone(context.Context, *desk, types.NamespacedName) (time.Duration, error)
	strays(context.Context, *desk, T) (time.Duration, error)
	// touch makes sure that no write of addresses to a stored claim, decided on an older version of it, can land any more, and gives the
	// resourceVersion since which that is so: 0 where no claim with the UID is there.
	touch(ctx context.Context, to client.Client, live client.Reader, k ledger.Key, uid string) (uint64, error)
}

// poolAPI is what the generic path needs to know of one kind of pool, whose objects are P.
type poolAPI[P client.Object] interface {
	empty() P
	emptyList() client.ObjectList
	// pool is what the ledger makes of it. One that breaks a rule offers nothing; the faults say which.
	pool(P) (ledger.Pool, field.ErrorList)
	finalizer() string
	// rests says why a pool must be left alone, for now; nil where it need not.
	rests(*desk, P) error
	// urgent tells whether claims wait for the next write to a pool.
	urgent(context.Context, *desk, reconcile.Request) (bool, error)
	// status writes the status of a pool, which is as it was before: that one is the informer's own.
	status(ctx context.Context, d *desk, before, p P, usage ledger.Usage, m *poolMemory) (reconcile.Result, error)
	// gone lets go of what waited for a pool that is gone.
	gone(context.Context, *desk, reconcile.Request) error
}

// API is the claims and pools of one API group.
type API interface {
	// Kinds are those that count: of its claims, with what holds addresses for them, and of its pools.
	Kinds() (claims, pools []string)
	// lanes adds its queues.
	lanes(*Changes)
	// objects are an empty one of each of its kinds, by the kind.
	objects() map[string]client.Object
	scope() meta.RESTScope
	feed(ctx context.Context, f *Feed, mgr manager.Manager) error
	register(ctx context.Context, mgr manager.Manager, o Options) error
	collect(c *collector) (pools []ledger.Key, conflicts int, err error)
}

// api is the one implementation of API.
type api[T, P client.Object] struct {
	claimKind, poolKind string // poolKind is "" where all pools are other APIs'
	claimName, poolName string // of the controllers
	// wholeStatus says that nobody else writes a claim's status and that its type knows every field: it is written whole, which costs the
	// API server less than a patch.
	wholeStatus bool
	// clusterScoped says that its objects are in no namespace.
	clusterScoped bool
	claims        claimAPI[T]
	pools         poolAPI[P]
	others        []string     // kinds of other APIs' pools that its claims draw from
	addresses     *addressKind // nil where no other object holds addresses for the claims
}

// addressKind is objects that hold an address each, for a claim.
type addressKind struct {
	kind      string
	empty     func() client.Object
	emptyList func() client.ObjectList
	claim     func(client.Object) ledger.Claim
}

// Kinds implements API.
func (a *api[T, P]) Kinds() (claims, pools []string) {
	claims = []string{a.claimKind}
	if a.addresses != nil {
		claims = append(claims, a.addresses.kind)
	}
	if a.poolKind != "" {
		pools = []string{a.poolKind}
	}
	return claims, pools
}

func (a *api[T, P]) objects() map[string]client.Object {
	all := map[string]client.Object{a.claimKind: a.claims.empty()}
	if a.addresses != nil {
		all[a.addresses.kind] = a.addresses.empty()
	}
	if a.poolKind != "" {
		all[a.poolKind] = a.pools.empty()
	}
	return all
}

func (a *api[T, P]) scope() meta.RESTScope {
	if a.clusterScoped {
		return meta.RESTScopeRoot
	}
	return meta.RESTScopeNamespace
}

// Objects are an empty object of each kind of some APIs.
func Objects(apis ...API) (all []runtime.Object) {
	for _, a := range apis {
		for _, o := range a.objects() {
			all = append(all, o)
		}
	}
	return all
}

// NewMapper maps the kinds of some APIs whether or not the API server serves them now.
func NewMapper(scheme *runtime.Scheme, apis ...API) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper(nil)
	for _, a := range apis {
		for kind, object := range a.objects() {
			gvk, err := apiutil.GVKForObject(object, scheme)
			if err != nil {
				return nil, err
			}
			resource := schema.ParseGroupResource(kind).WithVersion(gvk.Version)
			m.AddSpecific(gvk, resource, gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)), a.scope())
		}
	}
	return m, nil
}

// draws are the kinds of pools that its claims draw from.
func (a *api[T, P]) draws() []string {
	_, pools := a.Kinds()
	return append(pools, a.others...)
}

// poolReading is how pools of a kind are read.
type poolReading struct {
	empty func() client.Object
	pool  func(client.Object) ledger.Pool
}

func readingOf[P client.Object](pools poolAPI[P]) poolReading {
	return poolReading{
		empty: func() client.Object { return pools.empty() },
		pool:  func(o client.Object) ledger.Pool { pool, _ := pools.pool(o.(P)); return pool },
	}
}

// poolReadings are those of all kinds.
var poolReadings = map[string]poolReading{
	butler.KindNetworkPool:   readingOf[*butlerv1.NetworkPool](networkPools{}),
	novaedge.KindProxyIPPool: readingOf[*novaedgev1.ProxyIPPool](proxyIPPools{}),
	metal3.KindIPPool:        readingOf[*metal3v1.IPPool](ipPools{}),
}
