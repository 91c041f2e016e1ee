package webhooks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

const (
	// maxOwnerReads bounds the owners that one DELETE of a pool reads live. Further
	// owners are checked in the informers alone.
	maxOwnerReads = 64
	// ownersPatience is how long the denial of a DELETE waits for owners to be deleted:
	// tools that prune delete a pool and its claims at the same time, and the ProxyVIP of
	// a deleted Service is deleted a moment later. A DELETE whose owners all leave
	// already waits for nothing but live reads.
	ownersPatience = 3 * time.Second
	ownersPoll     = 20 * time.Millisecond
	// maxWaitingDeletes bounds the waiting denials for one kind of pool. Above the bound,
	// a DELETE is denied at once.
	maxWaitingDeletes = 16
)

// validateDelete denies the deletion of a pool with owners that stay. An owner leaves if
// one of these holds:
//
//	the owner has a deletionTimestamp, or is gone
//	the TenantCluster that releases the owner has a deletionTimestamp
//	a tool that applied owner and pool as one set deletes both, in any order
//
// A pool in a namespace that is being deleted, or that cannot be read, is always
// accepted.
//
// The pool's finalizer keeps the pool until all owners are gone, and a pool that is being
// deleted allocates nothing. Without this webhook the finalizer alone keeps the pool.
func (n *pools[P]) validateDelete(ctx context.Context, req *admission.Request) (admission.Response, error) {
	if req.Operation != admissionv1.Delete {
		return admission.Allowed(""), nil
	}
	pool, err := n.decode(req.OldObject.Raw) // the request of a deletecollection has no name
	if err != nil || pool.GetDeletionTimestamp() != nil {
		return admission.Allowed(""), err
	}
	pool.SetNamespace(req.Namespace)
	key := n.pool(pool).Key
	staying := n.ledger.StayingOwners(key)
	if len(staying) == 0 {
		return admission.Allowed(""), nil
	}
	if going, err := n.isNamespaceTerminating(ctx, req.Namespace); err != nil || going || n.allOwnersLeave(ctx, pool, staying, !isDryRun(req)) {
		return admission.Allowed(""), err
	}
	counts := map[string]int{}
	for _, o := range staying {
		if n.ledger.IsStayingOwner(o.UID) {
			counts[o.Key.Resource]++
		}
	}
	if len(counts) == 0 {
		return admission.Allowed(""), nil
	}
	return admission.Response{}, &poolInUse{pool: key, owners: counts, kinds: n.owners.kinds}
}

// allOwnersLeave reports whether all staying owners leave, according to the informers or
// to a live read of the owner. A patient call waits up to ownersPatience for owners to be
// deleted. The first owner that stays ends the reads.
func (n *pools[P]) allOwnersLeave(ctx context.Context, pool P, staying []ledger.Owner, patient bool) bool {
	if patient {
		select {
		case n.waiting <- struct{}{}:
			defer func() { <-n.waiting }()
		default:
			patient = false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ownersPatience)
	defer cancel()
	reads := 0
	for _, o := range staying {
		if !n.ledger.IsStayingOwner(o.UID) || n.owners.inSetWith(ctx, pool, o) {
			continue
		}
		if reads < maxOwnerReads {
			if reads++; n.owners.isLeaving(ctx, o) {
				continue
			}
		}
		for n.ledger.IsStayingOwner(o.UID) {
			if !patient {
				return false
			}
			select {
			case <-ctx.Done():
				return false
			case <-time.After(ownersPoll):
			}
		}
	}
	return true
}

// owners reads owners of pools.
type owners struct {
	cached, live client.Reader
	kinds        map[string]ownerKind // resource in the ledger -> kind
	tenants      bool                 // whether TenantClusters are served
}

// ownerKind is a kind of claims or address objects.
type ownerKind struct {
	schema.GroupVersionKind
	empty func() client.Object
}

// setMarks are the labels and annotations of tools that apply and prune a set of objects.
// These tools delete a pool before its claims: Flux deletes in the reverse order of
// kinds, kubectl prunes the kinds of an ApplySet in random order and stops at the first
// error, Helm deletes in the order of kinds.
var setMarks = []struct {
	in   func(metav1.Object) map[string]string
	keys []string
}{
	{metav1.Object.GetLabels, []string{"kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace"}},
	{metav1.Object.GetLabels, []string{"applyset.kubernetes.io/part-of"}},
	{metav1.Object.GetAnnotations, []string{"meta.helm.sh/release-name", "meta.helm.sh/release-namespace"}},
}

// sameSet reports whether a tool applied both objects as parts of one set.
func sameSet(a, b metav1.Object) bool {
	for _, mark := range setMarks {
		if !slices.ContainsFunc(mark.keys, func(key string) bool { return mark.in(a)[key] == "" || mark.in(a)[key] != mark.in(b)[key] }) {
			return true
		}
	}
	return false
}

// inSetWith reports whether a tool applied a pool and its owner as parts of one set, as
// far as the informers show.
func (r owners) inSetWith(ctx context.Context, pool metav1.Object, o ledger.Owner) bool {
	kind, known := r.kinds[o.Key.Resource]
	if !known || !sameSet(pool, pool) { // the pool is in no set
		return false
	}
	stored := kind.empty()
	err := r.cached.Get(ctx, client.ObjectKey{Namespace: o.Key.Namespace, Name: o.Key.Name}, stored, client.UnsafeDisableDeepCopy)
	return err == nil && string(stored.GetUID()) == o.UID && sameSet(pool, stored)
}

// isLeaving reports whether an owner is gone, is being deleted, or is released by a
// TenantCluster that is being deleted. An owner that cannot be read stays.
func (r owners) isLeaving(ctx context.Context, o ledger.Owner) bool {
	kind, known := r.kinds[o.Key.Resource]
	if !known {
		return false
	}
	stored, err := r.metadata(ctx, kind.GroupVersionKind, client.ObjectKey{Namespace: o.Key.Namespace, Name: o.Key.Name})
	switch {
	case apierrors.IsNotFound(err), err == nil && (string(stored.UID) != o.UID || stored.DeletionTimestamp != nil):
		return true
	case err != nil || !r.tenants || stored.Labels[butlerv1.LabelManagedBy] != butlerv1.ManagedByIPAM || stored.Annotations[butlerv1.AnnotationKeep] == "true":
		return false
	}
	a := &butlerv1.IPAllocation{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(stored), a); err != nil {
		return false
	}
	ref := a.Spec.TenantClusterRef
	tenant, err := r.metadata(ctx, butlerv1.GroupVersion.WithKind("TenantCluster"), client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
	return err == nil && tenant.DeletionTimestamp != nil && string(tenant.UID) == a.Annotations[butlerv1.AnnotationTenantUID]
}

func (r owners) metadata(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind)
	return o, r.live.Get(ctx, key, o)
}

// poolInUse denies the deletion of a pool with owners.
type poolInUse struct {
	pool   ledger.Key
	owners map[string]int       // resource in the ledger -> number of owners
	kinds  map[string]ownerKind // resource in the ledger -> kind
}

func (e *poolInUse) Error() string {
	var (
		counted, resources []string
		total              int
	)
	for _, resource := range slices.Sorted(maps.Keys(e.owners)) {
		counted = append(counted, allocator.Counted(e.owners[resource], strings.ToLower(e.kinds[resource].Kind)))
		resources = append(resources, resource) // with the group, since Kubernetes has ipaddresses too
		total += e.owners[resource]
	}
	where := ""
	if e.pool.Namespace != "" {
		where = " -n " + e.pool.Namespace
	}
	return fmt.Sprintf("pool %s cannot be deleted while %s %s addresses of the pool: delete %s first, see kubectl get %s%s",
		e.pool, strings.Join(counted, " and "), allocator.Agree(total, "owns", "own"), allocator.Agree(total, "it", "them"), strings.Join(resources, ","), where)
}

// Unwrap makes the error a review.ErrInUse.
func (e *poolInUse) Unwrap() error { return review.ErrInUse }
