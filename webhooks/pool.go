package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/webhooks/review"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// poolAdapter is what the generic path requires of a pool kind, whose objects are P.
type poolAdapter[P client.Object] interface {
	// subject returns the kind.
	subject() review.Subject
	// empty returns an empty pool.
	empty() P
	// pool converts a pool for the ledger. An invalid pool offers no addresses and
	// carries its fault.
	pool(P) ledger.Pool
	// finalizer returns the finalizer that keeps a new pool stored while addresses of the
	// pool are owned. A pool that is not managed yet gets the finalizer later: "".
	finalizer(P) string
	// sameOffer reports whether an update leaves the offered addresses unchanged.
	sameOffer(old, p P) bool
	// faults returns violations of rules that need no other object. An update (updating)
	// is not denied for violations of the stored pool.
	faults(old, p P, updating bool) field.ErrorList
	// warnings describe settings that are valid but most likely unintended. describeOwner
	// describes the owner of an address in the routing domain; "" for a free address.
	warnings(p P, describeOwner func(netip.Addr) string) []string
	// announces reports whether the cluster announces the addresses of the pool: then a
	// Node must have none of them.
	announces() bool
}

// pools is the generic path of one pool kind. An update must not exclude owned addresses.
type pools[P client.Object] struct {
	poolAdapter[P]
	ledger       *ledger.Ledger
	cached, live client.Reader
	owners       owners
	cluster      clusterAddressUse
	// waiting bounds the denials that wait for owners to be deleted.
	waiting chan struct{}
	log     logr.Logger
}

// mutate adds the finalizer to a new pool. A stored pool allocates at once. If a
// reconciler added the finalizer later, a DELETE before that, while no replica answers
// the webhook, would remove a pool in use.
func (n *pools[P]) mutate(_ context.Context, req *admission.Request) (admission.Response, error) {
	if req.Operation != admissionv1.Create {
		return admission.Allowed(""), nil
	}
	pool, err := n.decode(req.Object.Raw)
	if err != nil {
		return admission.Allowed(""), nil // the schema denies the pool, and names each field
	}
	pool.SetNamespace(req.Namespace)
	before := readFields(pool, nil)
	if name := n.finalizer(pool); name != "" {
		object.AddFinalizer(pool, name)
	}
	p, err := before.diff(readFields(pool, nil))
	return admission.Patched("", p...), err
}

func (n *pools[P]) validate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	if !storesObject(req) {
		return admission.Allowed(""), nil
	}
	pool, err := n.decode(req.Object.Raw) // also of a pool that is being deleted: claims own addresses of the pool as long as the pool is stored
	if err != nil {
		return admission.Allowed(""), err
	}
	pool.SetNamespace(req.Namespace)
	var (
		old      P
		updating = req.Operation == admissionv1.Update
	)
	if updating {
		if old, err = n.decode(req.OldObject.Raw); err != nil {
			return admission.Response{}, err
		}
		if n.sameOffer(old, pool) {
			return admission.Allowed(""), nil
		}
		stored, err := n.readStored(ctx, n.pool(pool).Key, old)
		switch {
		case err != nil:
			return admission.Response{}, err
		case !isVersion(stored, old) && !isDryRun(req):
			// The API server cannot store an update of a replaced version, and repeats
			// the call with the next version. It does not repeat a dry run.
			return admission.Allowed(""), nil
		}
		old = stored
	}
	if errs := n.faults(old, pool, updating); len(errs) > 0 {
		return admission.Response{}, review.InvalidError(errs)
	}
	changed := n.pool(pool) // a fault of the stored pool denies no update
	if updating {
		if err := n.updatePool(ctx, old, changed, isDryRun(req)); err != nil {
			return admission.Response{}, err
		}
	}
	if stranded := n.ledger.FindStrandedOwner(changed); stranded != nil {
		return admission.Response{}, stranded
	}
	describeOwner := func(a netip.Addr) string {
		owner := n.ledger.OwnerOf(changed.RoutingDomain, a)
		if owner == nil {
			return ""
		}
		return owner.Owner.SeenFrom(review.PlaceOf(req))
	}
	return admission.Allowed("").WithWarnings(slices.Concat(
		n.warnings(pool, describeOwner), n.cluster.warnings(ctx, changed, n.announces()), n.cluster.warnNarrowed(changed), n.warnOverlaps(changed), n.warnOwned(changed))...), nil
}

// readStored reads the stored pool that an update claims to replace. A caller without a
// client certificate can invent an old version, so the old version is read: from the
// informers if the informers have the version, otherwise from the API server. The result
// is the old version or a later version.
func (n *pools[P]) readStored(ctx context.Context, key ledger.Key, old P) (P, error) {
	if stored, err := readPool(ctx, key, n.cached, n.empty()); err == nil && isVersion(stored, old) {
		return stored, nil
	}
	stored, err := readPool(ctx, key, n.live, n.empty())
	if err == nil && !isVersion(stored, old) && object.ResourceVersion(stored) <= object.ResourceVersion(old) {
		err = &ledger.NotServingError{NoOtherReplica: true, RetryAfter: time.Second, Reason: fmt.Sprintf("pool %s is stored as another version than the update replaces", key)}
	}
	return stored, err
}

// isVersion reports whether a and b are the same version of the same object.
func isVersion(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// updatePool asks the ledger whether the stored pool may be changed.
func (n *pools[P]) updatePool(ctx context.Context, stored P, changed ledger.Pool, dryRun bool) error {
	if !n.ledger.HasObserved(changed.Key, object.ResourceVersion(stored)) {
		n.ledger.AddReadPool(n.pool(stored))
	}
	return n.ledger.UpdatePool(ctx, changed, dryRun)
}

// maxNamed bounds the pools named in one warning: the API server truncates long warnings.
const maxNamed = 4

func (n *pools[P]) warnOverlaps(pool ledger.Pool) []string {
	others := n.ledger.Overlapping(pool)
	if len(others) == 0 {
		return nil
	}
	names := make([]string, 0, maxNamed+1)
	for i, k := range others {
		if i == maxNamed {
			names = append(names, fmt.Sprintf("%d more", len(others)-maxNamed))
			break
		}
		names = append(names, k.String())
	}
	return []string{fmt.Sprintf("pool %s offers some of the same addresses as %s: each address is allocated once only, from the pool that is asked first", pool.Key, strings.Join(names, ", "))}
}

// warnOwned warns of addresses of a pool that have an owner.
func (n *pools[P]) warnOwned(pool ledger.Pool) []string {
	conflict := n.ledger.FindOwnerConflict(pool)
	if conflict == nil {
		return nil
	}
	return []string{fmt.Sprintf("pool %s offers addresses that are not free: %s", pool.Key, conflict.SeenFrom(pool.Key.Place()))}
}

// isNamespaceTerminating reports whether a namespace is terminating. An unreadable
// namespace counts as terminating, so the delete is allowed. Error: errTooManyReads.
func (n *pools[P]) isNamespaceTerminating(ctx context.Context, namespace string) (bool, error) {
	if namespace == "" {
		return false, nil
	}
	is, err := isTerminating(ctx, n.live, namespace)
	switch {
	case errors.Is(err, errTooManyReads):
		return false, err
	case err != nil:
		n.log.Error(err, "Reading the namespace failed, only the finalizer keeps the pool", "namespace", namespace)
	}
	return is || err != nil, nil
}

// isTerminating reports whether a namespace has a deletionTimestamp.
func isTerminating(ctx context.Context, live client.Reader, name string) (bool, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	err := live.Get(ctx, client.ObjectKey{Name: name}, namespace)
	return namespace.DeletionTimestamp != nil, err
}

func (n *pools[P]) decode(raw []byte) (P, error) {
	p := n.empty()
	return p, decode(raw, p, strings.ToLower(n.subject().Kind.Kind))
}

// readPool reads a pool. Errors: *ledger.NoPoolError, *ledger.NotServingError.
func readPool[P client.Object](ctx context.Context, k ledger.Key, pools client.Reader, into P, how ...client.GetOption) (P, error) {
	if err := pools.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, into, how...); err != nil {
		return into, readError(err, k)
	}
	return into, nil
}

// readLedgerPool reads a pool and converts it for the ledger. Errors:
// *ledger.NoPoolError, *ledger.NotServingError.
func readLedgerPool[P client.Object](ctx context.Context, adapter poolAdapter[P], k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	p, err := readPool(ctx, k, pools, adapter.empty())
	if err != nil {
		return ledger.Pool{}, err
	}
	return adapter.pool(p), nil
}
