package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/pools"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// +kubebuilder:rbac:groups=novaedge.io,resources=proxyvips,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=novaedge.io,resources=proxyvips/status,verbs=patch

// NovaEdge is the API novaedge.io.
var NovaEdge API = &apiAdapter[*v1alpha1.ProxyVIP, *v1alpha1.ProxyIPPool]{
	claimResource: novaedge.ResourceProxyVIP, poolResource: novaedge.ResourceProxyIPPool,
	claimName: "proxyvip", poolName: "proxyippool", clusterScoped: true, workers: claimWorkers,
	newClaims: func() claims.Adapter[*v1alpha1.ProxyVIP] { return proxyVIPs{} }, pools: pools.ProxyIPPools,
}

// proxyVIPs adapts ProxyVIPs: the allocation is in spec.address and spec.ipv6Address. A
// VIP has no finalizer, and its addresses are free when the VIP is gone: nothing needs to
// be recorded or deleted before, since a ProxyIPPool has no reuse delay and a VIP has no
// address object.
type proxyVIPs struct{}

func (proxyVIPs) NewObject() *v1alpha1.ProxyVIP { return &v1alpha1.ProxyVIP{} }

func (proxyVIPs) NewList() client.ObjectList { return &v1alpha1.ProxyVIPList{} }

func (proxyVIPs) ToClaim(v *v1alpha1.ProxyVIP) ledger.Claim { return novaedge.ConvertClaim(v) }

func (proxyVIPs) CheckReadable(v *v1alpha1.ProxyVIP) error {
	_, errs := novaedge.ParseSpecAddresses(v)
	return errs.ToAggregate()
}

func (proxyVIPs) HasAddresses(v *v1alpha1.ProxyVIP) bool {
	return novaedge.FindAddresses(v).IsComplete(v)
}

func (proxyVIPs) AllocatedByUs(v *v1alpha1.ProxyVIP) bool {
	named, _ := novaedge.ParseSpecAddresses(v)
	return named.IsComplete(v) && v.Annotations[butlerv1.AnnotationOrigin] != ""
}

func (proxyVIPs) AllocatedEarlier(_ context.Context, _ *claims.Deps, v *v1alpha1.ProxyVIP) (others []allocator.Range, yes bool, err error) {
	return nil, v.Status.AllocatedAddress != "", nil
}

func (proxyVIPs) IsFlagged(v *v1alpha1.ProxyVIP) bool { return novaedge.IsFlagged(v) }

func (p proxyVIPs) HasFailed(v *v1alpha1.ProxyVIP) bool {
	bound := p.OwnershipCondition(v)
	return bound != nil && (bound.Reason == v1alpha1.ReasonAllocationFailed || bound.Reason == v1alpha1.ReasonPoolExhausted)
}

func (proxyVIPs) OwnershipCondition(v *v1alpha1.ProxyVIP) *metav1.Condition {
	return meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound)
}

func (proxyVIPs) Requests(_ context.Context, _ *claims.Deps, v *v1alpha1.ProxyVIP) ([]ledger.RangeRequest, string, error) {
	return novaedge.BuildRequests(v), butlerv1.OriginAuto, nil
}

func (proxyVIPs) FillSpec(v *v1alpha1.ProxyVIP, ranges []allocator.Range) {
	novaedge.FillSpec(v, ranges)
}

func (proxyVIPs) SetOrigin(before, v *v1alpha1.ProxyVIP) {
	novaedge.SetOrigin(before, v, novaedge.BuildRequests(before))
}

func (proxyVIPs) CompleteMetadata(v *v1alpha1.ProxyVIP, routingDomain string) bool {
	return novaedge.CompleteMetadata(v, routingDomain)
}

func (proxyVIPs) SetAllocated(_ context.Context, _ *claims.Deps, v *v1alpha1.ProxyVIP) error {
	owned := novaedge.FindAddresses(v)
	v.Status.AllocatedAddress, v.Status.AllocatedIPv6Address = novaedge.FormatAddress(owned.IPv4), novaedge.FormatAddress(owned.IPv6)
	if v.Status.AllocatedAddress == "" {
		v.Status.AllocatedAddress = v.Status.AllocatedIPv6Address // clients read the address of a VIP with one family from this field
	}
	setBound(v, metav1.ConditionTrue, v1alpha1.ReasonAddressAllocated, boundText(v))
	meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionConflict)
	return nil
}

// boundText is the message of condition Bound=True. It names the pool only if the pool
// offers the addresses.
func boundText(v *v1alpha1.ProxyVIP) string {
	var texts []string
	for _, r := range novaedge.FindAddresses(v).Ranges() {
		texts = append(texts, novaedge.FormatAddress(r.First))
	}
	text := "Address " + texts[0]
	if len(texts) > 1 {
		text = "Addresses " + strings.Join(texts, " and ")
	}
	switch {
	case v.Spec.PoolRef == nil:
		return text + " reserved, of no pool"
	case meta.IsStatusConditionTrue(v.Status.Conditions, butlerv1.ConditionNotOffered):
		return text + " reserved, see condition " + butlerv1.ConditionNotOffered
	}
	return text + " allocated from pool " + v.Spec.PoolRef.Name
}

// SetNotOffered also corrects the message of condition Bound, which names the pool.
func (p proxyVIPs) SetNotOffered(v *v1alpha1.ProxyVIP, e *ledger.NotOfferedError) bool {
	isNews := setNotOffered(&v.Status.Conditions, v.Generation, e)
	if bound := p.OwnershipCondition(v); isNews && bound != nil && bound.Status == metav1.ConditionTrue {
		bound.Message = boundText(v)
	}
	return isNews
}

func (proxyVIPs) SetConflict(v *v1alpha1.ProxyVIP, message string) {
	setBound(v, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict, message)
	meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConflict, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAddressConflict, Message: message, ObservedGeneration: v.Generation,
	})
}

// SetDenied writes the ledger's denial. The text changes only when the cause does, so
// that a waiting VIP is not written for every address that is allocated or released.
func (p proxyVIPs) SetDenied(v *v1alpha1.ProxyVIP, _ []ledger.RangeRequest, err error) {
	var (
		noPool   *ledger.NoPoolError
		deleting *ledger.PoolDeletingError
		owned    *ledger.OwnedError
		inPool   *ledger.PoolError
		place    = p.ToClaim(v).Key.StatusPlace()
	)
	reason, message := v1alpha1.ReasonAllocationFailed, err.Error()
	switch {
	case errors.As(err, &noPool):
		reason, message = v1alpha1.ReasonPoolNotFound, fmt.Sprintf("pool %s does not exist: the addresses are allocated as soon as it does", noPool.Pool)
	case errors.As(err, &deleting):
		reason = v1alpha1.ReasonDeleting
	case errors.As(err, &owned):
		message = claims.OwnedText(err, owned, place)
	case errors.Is(err, allocator.ErrExhausted):
		reason, message = v1alpha1.ReasonPoolExhausted, fmt.Sprintf("pool exhausted: %s has no free address: enlarge it or release some%s", v.Spec.PoolRef.Name, claims.PromisedText(err))
	case errors.As(err, &inPool):
		message = inPool.SeenFrom(place)
	}
	setBound(v, metav1.ConditionFalse, reason, message)
	meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionConflict) // no other claim owns its addresses
}

func setBound(v *v1alpha1.ProxyVIP, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionBound, Status: status, Reason: reason, Message: message, ObservedGeneration: v.Generation,
	})
}

// FenceWrites updates the VIP in any case: an update in flight may contain other
// addresses.
func (proxyVIPs) FenceWrites(ctx context.Context, c client.Client, live client.Reader, k ledger.Key, uid string) (uint64, error) {
	return write.Fence(ctx, c, live, feed.Request(k).NamespacedName, uid, &v1alpha1.ProxyVIP{})
}
