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

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// poolAdapter is what the generic path needs to know of one kind of pool, whose objects are P.
type poolAdapter[P client.Object] interface {
	// subject of its webhooks.
	subject() subject
	// empty is an object to read into.
	empty() P
	// pool is what the ledger makes of one. A pool that breaks a rule offers nothing, and says so itself.
	pool(P) ledger.Pool
	// sameOffer tells whether an update leaves what the pool offers as it is.
	sameOffer(old, p P) bool
	// faults of a pool about to be stored, by the rules that need no other object; of an update only those that the stored one has not.
	// updating tells whether there is a stored one.
	faults(old, p P, updating bool) field.ErrorList
	// warnings say what is allowed, but most likely not meant. held says by whom an address of the pool's routing domain is held, "" for nobody.
	warnings(ctx context.Context, p P, held func(netip.Addr) string) []string
}

// pools validates one kind of pool: nothing that is held may fall out of one.
type pools[P client.Object] struct {
	poolAdapter[P]
	ledger       *ledger.Ledger
	cached, live client.Reader
	owners       owners
	// waiting bounds the denials that wait for owners to be deleted.
	waiting chan struct{}
	log     logr.Logger
}

func (n *pools[P]) validate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	if !stores(req) {
		return admission.Allowed(""), nil
	}
	pool, err := n.decode(req.Object.Raw) // of one that is being deleted too: its claims keep their addresses as long as it is stored
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
		stored, err := n.confirmed(ctx, n.pool(pool).Key, old)
		if err != nil || !isVersion(stored, old) {
			return admission.Allowed(""), err // the API server cannot store an update of a version that was replaced, and calls again with the next one
		}
		old = stored
	}
	if errs := n.faults(old, pool, updating); len(errs) > 0 {
		return admission.Response{}, invalid(errs)
	}
	changed := n.pool(pool) // a fault that the stored pool has too is let pass
	if updating {
		if err := n.change(ctx, old, changed, isDryRun(req)); err != nil {
			return admission.Response{}, err
		}
	}
	held := func(a netip.Addr) string {
		owner := n.ledger.OwnerIn(changed.Space, a)
		if owner == nil {
			return ""
		}
		return owner.Holder.SeenFrom(placeOf(req))
	}
	return admission.Allowed("").WithWarnings(slices.Concat(n.warnings(ctx, pool, held), n.overlaps(changed), n.taken(changed))...), nil
}

// confirmed reads the stored pool of which an update says that it replaces the version old. A caller without a certificate can make up any old version, so
// only a read counts: of the informers, where they show that version, else of the API server. The pool that is read is that version or a later one.
func (n *pools[P]) confirmed(ctx context.Context, key ledger.Key, old P) (P, error) {
	if stored, err := readPool(ctx, key, n.cached, n.empty()); err == nil && isVersion(stored, old) {
		return stored, nil
	}
	stored, err := readPool(ctx, key, n.live, n.empty())
	if err == nil && !isVersion(stored, old) && fields.ResourceVersion(stored) <= fields.ResourceVersion(old) {
		err = &ledger.NotServingError{Here: true, RetryAfter: time.Second, Reason: fmt.Sprintf("pool %s is stored as another version than the update replaces", key)}
	}
	return stored, err
}

// isVersion reports whether two objects are one version of one object.
func isVersion(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// change asks the ledger whether the stored pool may become what an update makes of it.
func (n *pools[P]) change(ctx context.Context, stored P, changed ledger.Pool, dryRun bool) error {
	if !n.ledger.Knows(changed.Key, fields.ResourceVersion(stored)) {
		n.ledger.LearnPool(n.pool(stored))
	}
	return n.ledger.ChangePool(ctx, changed, dryRun)
}

// maxNamed is how many pools one warning names: the API server shortens long ones.
const maxNamed = 4

func (n *pools[P]) overlaps(pool ledger.Pool) []string {
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
	return []string{fmt.Sprintf("pool %s offers some of the same addresses as %s: each is given once only, by whichever pool is asked first", pool.Key, strings.Join(names, ", "))}
}

// taken warns of addresses that a pool will not have to give.
func (n *pools[P]) taken(pool ledger.Pool) []string {
	held := n.ledger.Taken(pool)
	if held == nil {
		return nil
	}
	return []string{fmt.Sprintf("pool %s takes nothing from who has it already: %s, and stays so until that is over", pool.Key, held.SeenFrom(pool.Key.Place()))}
}

// going tells whether a namespace is being deleted, and lets the delete through where that cannot be told. The error is errTooManyReads.
func (n *pools[P]) going(ctx context.Context, namespace string) (bool, error) {
	if namespace == "" {
		return false, nil
	}
	is, err := terminating(ctx, n.live, namespace)
	switch {
	case errors.Is(err, errTooManyReads):
		return false, err
	case err != nil:
		n.log.Error(err, "Namespace cannot be read, the pool's finalizer alone keeps it", "namespace", namespace)
	}
	return is || err != nil, nil
}

// terminating tells whether a namespace is being deleted, with all that is in it.
func terminating(ctx context.Context, live client.Reader, name string) (bool, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	err := live.Get(ctx, client.ObjectKey{Name: name}, namespace)
	return namespace.DeletionTimestamp != nil, err
}

func (n *pools[P]) decode(raw []byte) (P, error) {
	p := n.empty()
	return p, decode(raw, p, strings.ToLower(n.subject().kind.Kind))
}

// readPool reads a pool; *ledger.NoPoolError where it does not exist.
func readPool[P client.Object](ctx context.Context, k ledger.Key, pools client.Reader, into P, how ...client.GetOption) (P, error) {
	if err := pools.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, into, how...); err != nil {
		return into, readError(err, k)
	}
	return into, nil
}

// storedPool is a pool as the ledger knows it; *ledger.NoPoolError where it does not exist.
func storedPool[P client.Object](ctx context.Context, adapter poolAdapter[P], k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	p, err := readPool(ctx, k, pools, adapter.empty())
	if err != nil {
		return ledger.Pool{}, err
	}
	return adapter.pool(p), nil
}
