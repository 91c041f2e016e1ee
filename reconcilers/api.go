package reconcilers

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
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
	// an earlier allocator says that they are its own.
	held(T) bool
	answered(T) bool
	vouched(T) bool
	// flagged tells whether it is marked as one of whose addresses others have; failed, as one that cannot be given what it asks for.
	flagged(T) bool
	failed(T) bool
	// condition says whether its addresses are its own.
	condition(T) *metav1.Condition
	// wants is what it asks for, from its pool, which may be missing.
	wants(T, poolReader) []ledger.Want
	// fill writes ranges into the fields of spec that are absent.
	fill(T, []allocator.Range)
	// complete adds what a claim of a space should carry and does not, and tells whether anything was missing.
	complete(T, string) bool
	// allocated, clashing and refused write its status: its addresses are its own, others have some of them, or the ledger refuses what it
	// asks for.
	allocated(T, time.Time)
	clashing(T, string)
	refused(T, []ledger.Want, error)
	// release takes one that is being deleted on its way.
	release(context.Context, *desk, T) error
	// touch makes sure that no write of addresses to a stored claim, decided on an older version of it, can land any more.
	touch(context.Context, client.Client, client.Reader, ledger.Key, string) (T, bool, error)
}

// poolAPI is what the generic path needs to know of one kind of pool, whose objects are P.
type poolAPI[P client.Object] interface {
	empty() P
	emptyList() client.ObjectList
	// pool is what the ledger makes of it. One that breaks a rule offers nothing; the faults say which.
	pool(P) (ledger.Pool, field.ErrorList)
	finalizer() string
	// urgent tells whether claims wait for the next write to a pool.
	urgent(context.Context, *desk, reconcile.Request) (bool, error)
	// status writes the status of a pool.
	status(ctx context.Context, d *desk, p P, usage ledger.Usage, m *poolMemory) (reconcile.Result, error)
	// gone lets go of what waited for a pool that is gone.
	gone(context.Context, *desk, reconcile.Request) error
}

// poolReader reads the pool of a claim, or says that it is not there.
type poolReader func(client.Object) error

// API is the claims and pools of one API group.
type API interface {
	// Kinds are those of its claims and of its pools.
	Kinds() (claims, pools string)
	feed(ctx context.Context, f *Feed, mgr manager.Manager) error
	register(ctx context.Context, mgr manager.Manager, o Options) error
	collect(c *collector) (pools []ledger.Key, conflicts int, err error)
}

// api is the one implementation of API.
type api[T, P client.Object] struct {
	claimKind, poolKind string
	claimName, poolName string // of the controllers
	// wholeStatus says that nobody else writes a claim's status and that its type knows every field: it is written whole, which costs the
	// API server less than a patch.
	wholeStatus bool
	claims      claimAPI[T]
	pools       poolAPI[P]
}

// Kinds implements API.
func (a *api[T, P]) Kinds() (claims, pools string) { return a.claimKind, a.poolKind }
