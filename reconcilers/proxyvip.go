package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/allocator/ledger/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// +kubebuilder:rbac:groups=novaedge.io,resources=proxyvips,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=novaedge.io,resources=proxyvips/status,verbs=patch

// NovaEdge is the API novaedge.io.
var NovaEdge API = &api[*v1alpha1.ProxyVIP, *v1alpha1.ProxyIPPool]{
	claimKind: novaedge.KindProxyVIP, poolKind: novaedge.KindProxyIPPool,
	claimName: "proxyvip", poolName: "proxyippool", clusterScoped: true,
	claims: proxyVIPs{}, pools: proxyIPPools{},
}

// proxyVIPs adapts ProxyVIPs: the answer is spec.address and spec.ipv6Address. Nothing is recorded of a release, so they carry no finalizer.
type proxyVIPs struct{}

func (proxyVIPs) empty() *v1alpha1.ProxyVIP { return &v1alpha1.ProxyVIP{} }

func (proxyVIPs) emptyList() client.ObjectList { return &v1alpha1.ProxyVIPList{} }

func (proxyVIPs) claim(v *v1alpha1.ProxyVIP) ledger.Claim { return novaedge.ClaimOf(v) }

func (proxyVIPs) unreadable(v *v1alpha1.ProxyVIP) error {
	_, errs := novaedge.InSpec(v)
	return errs.ToAggregate()
}

func (proxyVIPs) held(v *v1alpha1.ProxyVIP) bool { return novaedge.Held(v).Complete(v) }

func (proxyVIPs) answered(v *v1alpha1.ProxyVIP) bool {
	named, _ := novaedge.InSpec(v)
	return named.Complete(v) && v.Annotations[butlerv1.AnnotationOrigin] != ""
}

func (proxyVIPs) vouched(_ context.Context, _ *desk, v *v1alpha1.ProxyVIP) (others []allocator.Range, yes bool, err error) {
	return nil, v.Status.AllocatedAddress != "", nil
}

func (proxyVIPs) flagged(v *v1alpha1.ProxyVIP) bool { return novaedge.Flagged(v) }

func (p proxyVIPs) failed(v *v1alpha1.ProxyVIP) bool {
	bound := p.condition(v)
	return bound != nil && (bound.Reason == v1alpha1.ReasonAllocationFailed || bound.Reason == v1alpha1.ReasonPoolExhausted)
}

func (proxyVIPs) condition(v *v1alpha1.ProxyVIP) *metav1.Condition {
	return meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound)
}

func (proxyVIPs) rests(context.Context, *desk, *v1alpha1.ProxyVIP, metal3.Clusters) error {
	return nil
}

func (proxyVIPs) wants(_ context.Context, _ *desk, v *v1alpha1.ProxyVIP) ([]ledger.Want, string, error) {
	return novaedge.WantsOf(v), butlerv1.OriginAuto, nil
}

func (proxyVIPs) fill(v *v1alpha1.ProxyVIP, ranges []allocator.Range) { novaedge.Fill(v, ranges) }

func (proxyVIPs) complete(v *v1alpha1.ProxyVIP, space string) bool {
	labels := novaedge.MissingLabels(v, space)
	for k, value := range labels {
		metav1.SetMetaDataLabel(&v.ObjectMeta, k, value)
	}
	return len(labels) > 0
}

func (proxyVIPs) allocated(_ context.Context, _ *desk, v *v1alpha1.ProxyVIP) (bool, error) {
	held := novaedge.Held(v)
	v.Status.AllocatedAddress, v.Status.AllocatedIPv6Address = novaedge.Text(held.IPv4), novaedge.Text(held.IPv6)
	if v.Status.AllocatedAddress == "" {
		v.Status.AllocatedAddress = v.Status.AllocatedIPv6Address // where a VIP of one family is looked for
	}
	var texts []string
	for _, r := range held.Ranges() {
		texts = append(texts, novaedge.Text(r.First))
	}
	message := "Address " + texts[0]
	if len(texts) > 1 {
		message = "Addresses " + strings.Join(texts, " and ")
	}
	if v.Spec.PoolRef != nil {
		message += " allocated from pool " + v.Spec.PoolRef.Name
	} else {
		message += " reserved, of no pool"
	}
	setBound(v, metav1.ConditionTrue, v1alpha1.ReasonAddressAllocated, message)
	meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionConflict)
	return true, nil
}

func (proxyVIPs) gone(context.Context, *desk, types.NamespacedName) (time.Duration, error) {
	return 0, nil
}

func (proxyVIPs) strays(context.Context, *desk, *v1alpha1.ProxyVIP) (time.Duration, error) {
	return 0, nil
}

func (proxyVIPs) clashing(v *v1alpha1.ProxyVIP, message string) {
	setBound(v, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict, message)
	meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConflict, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAddressConflict, Message: message, ObservedGeneration: v.Generation,
	})
}

// refused words the ledger's refusal. The words change only when the cause does, so that a VIP that waits is not written to with every
// address that comes and goes.
func (proxyVIPs) refused(v *v1alpha1.ProxyVIP, _ []ledger.Want, err error) {
	var (
		noPool   *ledger.NoPoolError
		deleting *ledger.PoolDeletingError
		held     *ledger.HeldError
	)
	reason, message := v1alpha1.ReasonAllocationFailed, err.Error()
	switch {
	case errors.As(err, &noPool):
		reason, message = v1alpha1.ReasonPoolNotFound, fmt.Sprintf("pool %s does not exist: the addresses are allocated as soon as it does", noPool.Pool)
	case errors.As(err, &deleting):
		reason = v1alpha1.ReasonDeleting
	case errors.As(err, &held):
		message = heldText(err, held, "")
	case errors.Is(err, allocator.ErrExhausted):
		reason, message = v1alpha1.ReasonPoolExhausted, fmt.Sprintf("pool exhausted: %s has no free address: enlarge it or release some", v.Spec.PoolRef.Name)
	}
	setBound(v, metav1.ConditionFalse, reason, message)
	meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionConflict) // nobody else has what it holds
}

func setBound(v *v1alpha1.ProxyVIP, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionBound, Status: status, Reason: reason, Message: message, ObservedGeneration: v.Generation,
	})
}

// release has nothing to do: the addresses are free when the object is gone.
func (proxyVIPs) release(context.Context, *desk, *v1alpha1.ProxyVIP) (time.Duration, error) {
	return 0, nil
}

// touch writes to the VIP, whatever it has: an update that is still on its way may give it other addresses.
func (proxyVIPs) touch(ctx context.Context, c client.Client, live client.Reader, k ledger.Key, uid string) (uint64, error) {
	return touchWith(ctx, c, live, k, uid, &v1alpha1.ProxyVIP{})
}

// boundSince is since when a VIP has its addresses.
func boundSince(v *v1alpha1.ProxyVIP) *metav1.Time {
	if bound := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound); bound != nil && bound.Status == metav1.ConditionTrue {
		return &bound.LastTransitionTime
	}
	return v.CreationTimestamp.DeepCopy()
}

// vipOf reads a VIP from the informers; they know no error but that it is not there.
func vipOf(ctx context.Context, d *desk, name string) (*v1alpha1.ProxyVIP, bool) {
	v := &v1alpha1.ProxyVIP{}
	err := d.client.Get(ctx, client.ObjectKey{Name: name}, v, client.UnsafeDisableDeepCopy)
	return v, !apierrors.IsNotFound(err)
}
