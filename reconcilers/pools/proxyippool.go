package pools

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// +kubebuilder:rbac:groups=novaedge.io,resources=proxyippools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=novaedge.io,resources=proxyippools/status,verbs=update

// maxAllocations bounds status.allocations of a pool, by its schema.
const maxAllocations = 1000

// ProxyIPPools is the adapter of ProxyIPPools.
var ProxyIPPools Adapter[*v1alpha1.ProxyIPPool] = proxyIPPools{}

// proxyIPPools writes the counters, the condition and the owner list of a ProxyIPPool.
type proxyIPPools struct{}

func (proxyIPPools) NewObject() *v1alpha1.ProxyIPPool { return &v1alpha1.ProxyIPPool{} }

func (proxyIPPools) NewList() client.ObjectList { return &v1alpha1.ProxyIPPoolList{} }

func (proxyIPPools) ToPool(p *v1alpha1.ProxyIPPool) (ledger.Pool, field.ErrorList) {
	return novaedge.ConvertPool(p)
}

func (proxyIPPools) finalizerName() string { return v1alpha1.FinalizerProxyIPPool }

func (proxyIPPools) writeStatus(ctx context.Context, d *deps, before, p *v1alpha1.ProxyIPPool, usage ledger.Usage, m *memory) (reconcile.Result, error) {
	pool, faults := novaedge.ConvertPool(p)
	p.Status.Allocated, p.Status.Granted, p.Status.Available, p.Status.ObservedGeneration = usage.Allocated, usage.Granted, usage.Available, p.Generation
	p.Status.Summary = summarize(usage, pool.Window, false)
	p.Status.Allocations, p.Status.AllocationsNotListed = allocations(ctx, d, p)
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPoolReady, ObservedGeneration: p.Generation,
		Message: fmt.Sprintf("Pool has %s available %s", allocator.Amount(usage.Available, usage.Exact.Available), allocator.Plural(usage.Available, "address")),
	}
	switch {
	case p.DeletionTimestamp != nil:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonDeleting
		ready.Message = ownersText(controllerutil.ContainsFinalizer(p, v1alpha1.FinalizerProxyIPPool), usage.Claims, "VIP")
	case len(faults) > 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonPoolConfigError, object.Summarize(faults)
	case usage.Exact.Total == 0:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonNoAddresses
		ready.Message = "pools of the routing domain reserve every address of spec: nothing can be allocated from this pool"
	}
	meta.SetStatusCondition(&p.Status.Conditions, ready)
	m.statusEntries = len(p.Status.Allocations)
	written, err := d.ReplaceStatus(ctx, before, p)
	if written {
		m.statusWritten = d.Now()
	}
	return reconcile.Result{}, err
}

// allocations lists the addresses of a pool that VIPs own, in numeric order, as many as
// the status has room for, and counts the others.
func allocations(ctx context.Context, d *deps, p *v1alpha1.ProxyIPPool) (list []v1alpha1.ProxyIPAllocation, more int64) {
	owned, total := d.Ledger.OwnedIn(novaedge.ProxyIPPoolKey(p.Name), []string{novaedge.ResourceProxyVIP}, maxAllocations)
	for _, o := range owned {
		entry := v1alpha1.ProxyIPAllocation{Address: novaedge.FormatAddress(o.Range.First), VIPRef: o.Owner.Name}
		if v, stored := vipOf(ctx, d, o.Owner.Name); stored {
			entry.AllocatedAt = boundSince(v)
		}
		list = append(list, entry)
	}
	return list, total - int64(len(owned))
}

// boundSince returns since when a VIP owns its addresses.
func boundSince(v *v1alpha1.ProxyVIP) *metav1.Time {
	if bound := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound); bound != nil && bound.Status == metav1.ConditionTrue {
		return &bound.LastTransitionTime
	}
	return v.CreationTimestamp.DeepCopy()
}

// vipOf reads a VIP from the informers; false if it is not stored.
func vipOf(ctx context.Context, d *deps, name string) (*v1alpha1.ProxyVIP, bool) {
	v := &v1alpha1.ProxyVIP{}
	err := d.Client.Get(ctx, client.ObjectKey{Name: name}, v, client.UnsafeDisableDeepCopy)
	return v, !apierrors.IsNotFound(err)
}
