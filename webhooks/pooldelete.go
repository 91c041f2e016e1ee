package webhooks

import (
	"context"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/allocator/ledger/clusterapi"
	"butlerlabs.dev/ipam/allocator/ledger/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

const (
	// maxOwnerReads bounds the live reads of one DELETE of a pool. Owners beyond it are judged by the informers alone.
	maxOwnerReads = 64
	// ownersPatience is how long the denial of a DELETE waits for owners to be deleted: tools that prune delete a pool and its claims at the same
	// time, and the ProxyVIP of a deleted Service is deleted a moment later. An accepted DELETE waits for nothing but live reads.
	ownersPatience = 3 * time.Second
	ownersPoll     = 20 * time.Millisecond
	// maxWaitingDeletes bounds the calls for one kind of pool that wait so at a time. Others are denied at once.
	maxWaitingDeletes = 16
)

// validateDelete denies the deletion of a pool with owners that stay. An owner leaves if one of these holds:
//
//	it has a deletionTimestamp, or is gone
//	its TenantCluster, which releases it, has a deletionTimestamp
//	the tool that applied it and the pool as one set deletes both, in an order of its own
//
// The pool's finalizer keeps the pool until all owners are gone, and a pool that is being deleted allocates nothing. Without this webhook the finalizer
// alone keeps the pool.
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
	if going, err := n.going(ctx, req.Namespace); err != nil || going || n.allLeave(ctx, pool, staying, !isDryRun(req)) {
		return admission.Allowed(""), err
	}
	counts := map[string]int{}
	for _, o := range staying {
		if n.ledger.Stays(o.UID) {
			counts[o.Key.Kind]++
		}
	}
	if len(counts) == 0 {
		return admission.Allowed(""), nil
	}
	return admission.Response{}, &poolInUse{pool: key, holders: counts}
}

// allLeave reports whether all of these owners leave: by the informers, or by a live read of the owner. With patience it waits a while for an owner that
// stays. A DELETE that is denied costs one live read.
func (n *pools[P]) allLeave(ctx context.Context, pool P, staying []ledger.Owner, patient bool) bool {
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
		if !n.ledger.Stays(o.UID) || n.owners.inSetOf(ctx, pool, o) {
			continue
		}
		if reads < maxOwnerReads {
			if reads++; n.owners.leaves(ctx, o) {
				continue
			}
		}
		for n.ledger.Stays(o.UID) {
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
	tenants      bool // TenantClusters are served
}

// ownerKinds are the kinds of owners, by their kind in the ledger, of the pools whose deletion can be denied.
var ownerKinds = map[string]struct {
	schema.GroupVersionKind
	empty func() client.Object
}{
	butler.KindIPAllocation:       {butlerv1.GroupVersion.WithKind("IPAllocation"), func() client.Object { return &butlerv1.IPAllocation{} }},
	novaedge.KindProxyVIP:         {novaedgev1.GroupVersion.WithKind("ProxyVIP"), func() client.Object { return &novaedgev1.ProxyVIP{} }},
	clusterapi.KindIPAddressClaim: {ipamv1.GroupVersion.WithKind("IPAddressClaim"), func() client.Object { return &ipamv1.IPAddressClaim{} }},
	clusterapi.KindIPAddress:      {ipamv1.GroupVersion.WithKind("IPAddress"), func() client.Object { return &ipamv1.IPAddress{} }},
}

// setMarks are what a tool writes on each object of a set that it applies and prunes as one. These tools delete a pool before its claims: Flux deletes in
// the reverse order of kinds, kubectl prunes the kinds of an ApplySet in random order and stops at the first error, Helm deletes in the order of kinds.
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

// inSetOf reports whether a tool applied a pool and its owner as parts of one set, as far as the informers show.
func (r owners) inSetOf(ctx context.Context, pool metav1.Object, o ledger.Owner) bool {
	kind, known := ownerKinds[o.Key.Kind]
	if !known || !sameSet(pool, pool) { // the second: it is in no set
		return false
	}
	stored := kind.empty()
	err := r.cached.Get(ctx, client.ObjectKey{Namespace: o.Key.Namespace, Name: o.Key.Name}, stored, client.UnsafeDisableDeepCopy)
	return err == nil && string(stored.GetUID()) == o.UID && sameSet(pool, stored)
}

// leaves reports whether an owner is gone, is being deleted, or is deleted as soon as its TenantCluster, which is being deleted, lets go of it. What
// cannot be read stays.
func (r owners) leaves(ctx context.Context, o ledger.Owner) bool {
	kind, known := ownerKinds[o.Key.Kind]
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
