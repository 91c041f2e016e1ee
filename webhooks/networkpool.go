package webhooks

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

var poolSubject = subject{kind: v1alpha1.GroupVersion.WithKind("NetworkPool")}

// networkPools validates NetworkPools: nothing that is held may fall out of one.
type networkPools struct {
	ledger *ledger.Ledger
	live   client.Reader
	log    logr.Logger
}

func (n *networkPools) validate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	if !stores(req) {
		return admission.Allowed(""), nil
	}
	pool, err := decodeNetworkPool(req.Object.Raw)
	if err != nil || pool.DeletionTimestamp != nil {
		return admission.Allowed(""), err
	}
	pool.Namespace = req.Namespace
	var (
		old  *v1alpha1.NetworkPool
		errs field.ErrorList
	)
	if req.Operation == admissionv1.Update {
		if old, err = decodeNetworkPool(req.OldObject.Raw); err != nil {
			return admission.Response{}, err
		}
		if equality.Semantic.DeepEqual(old.Spec, pool.Spec) {
			return admission.Allowed(""), nil
		}
		errs = butler.ValidateNetworkPoolUpdate(old, pool)
	} else {
		errs = butler.ValidateNetworkPool(pool)
	}
	if len(errs) > 0 {
		return admission.Response{}, invalid(errs)
	}
	changed, _ := butler.PoolOf(pool) // a fault that the stored pool has too is let pass: the pool then offers nothing
	if old != nil {
		if err := n.change(ctx, changed, isDryRun(req)); err != nil {
			return admission.Response{}, err
		}
	}
	return admission.Allowed("").WithWarnings(append(butler.WarningsFor(pool), n.overlaps(changed)...)...), nil
}

// change asks the ledger whether a pool may become what the update makes of it. A pool that the ledger does not know yet is read
// first: what a request says is stored is no more than its word.
func (n *networkPools) change(ctx context.Context, changed ledger.Pool, dryRun bool) error {
	if _, known := n.ledger.Usage(changed.Key); !known {
		np, err := readNetworkPool(ctx, changed.Key, n.live)
		if err != nil {
			return err
		}
		stored, _ := butler.PoolOf(np)
		n.ledger.LearnPool(stored)
	}
	return n.ledger.ChangePool(ctx, changed, dryRun)
}

// maxNamed is how many pools one warning names: the API server shortens long ones.
const maxNamed = 4

func (n *networkPools) overlaps(pool ledger.Pool) []string {
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

// validateDelete refuses to delete a pool that claims hold addresses of. The pool's finalizer would keep it in any case; this says so at
// once, and leaves the pool as it is.
func (n *networkPools) validateDelete(ctx context.Context, req *admission.Request) (admission.Response, error) {
	if req.Operation != admissionv1.Delete {
		return admission.Allowed(""), nil
	}
	pool, err := decodeNetworkPool(req.OldObject.Raw) // the request of a deletecollection has no name
	if err != nil || pool.DeletionTimestamp != nil {
		return admission.Allowed(""), err
	}
	key := butler.NetworkPoolKey(req.Namespace, pool.Name)
	usage, _ := n.ledger.Usage(key)
	if usage.Claims == 0 || n.terminating(ctx, req.Namespace) {
		return admission.Allowed(""), nil
	}
	return admission.Response{}, &poolInUse{pool: key, claims: usage.Claims}
}

// terminating tells whether a namespace is going, and lets the delete through where that cannot be told.
func (n *networkPools) terminating(ctx context.Context, name string) bool {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err := n.live.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		n.log.Error(err, "Namespace cannot be read, the pool's finalizer alone keeps it", "namespace", name)
		return true
	}
	return namespace.DeletionTimestamp != nil
}

func decodeNetworkPool(raw []byte) (*v1alpha1.NetworkPool, error) {
	p := &v1alpha1.NetworkPool{}
	return p, decode(raw, p, "networkpool")
}

func readNetworkPool(ctx context.Context, k ledger.Key, pools client.Reader) (*v1alpha1.NetworkPool, error) {
	p := &v1alpha1.NetworkPool{}
	if err := pools.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, p); err != nil {
		return nil, readError(err, k)
	}
	return p, nil
}
