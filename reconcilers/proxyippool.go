package reconcilers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/allocator/ledger/novaedge"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// +kubebuilder:rbac:groups=novaedge.io,resources=proxyippools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=novaedge.io,resources=proxyippools/status,verbs=update

// maxAllocations is how many addresses status.allocations of a pool lists, by its schema.
const maxAllocations = 1000

// proxyIPPools keeps a ProxyIPPool's counters, condition and list of who has what.
type proxyIPPools struct{}

func (proxyIPPools) empty() *v1alpha1.ProxyIPPool { return &v1alpha1.ProxyIPPool{} }

func (proxyIPPools) emptyList() client.ObjectList { return &v1alpha1.ProxyIPPoolList{} }

func (proxyIPPools) pool(p *v1alpha1.ProxyIPPool) (ledger.Pool, field.ErrorList) {
	return novaedge.PoolOf(p)
}

func (proxyIPPools) finalizer() string { return v1alpha1.FinalizerProxyIPPool }

func (proxyIPPools) rests(*desk, *v1alpha1.ProxyIPPool) error { return nil }

func (proxyIPPools) urgent(context.Context, *desk, reconcile.Request) (bool, error) {
	return false, nil
}

func (proxyIPPools) gone(context.Context, *desk, reconcile.Request) error { return nil }

func (proxyIPPools) status(ctx context.Context, d *desk, before, p *v1alpha1.ProxyIPPool, usage ledger.Usage, memory *poolMemory) (reconcile.Result, error) {
	_, faults := novaedge.PoolOf(p)
	p.Status.Allocated, p.Status.Available, p.Status.ObservedGeneration = usage.Allocated, usage.Available, p.Generation
	p.Status.Allocations, p.Status.AllocationsNotListed = allocations(ctx, d, p)
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPoolReady, ObservedGeneration: p.Generation,
		Message: fmt.Sprintf("Pool has %s available %s", allocator.Amount(usage.Available, usage.Exact.Available), allocator.Plural(usage.Available, "address")),
	}
	switch {
	case p.DeletionTimestamp != nil:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonDeleting
		ready.Message = holdsText(usage.Claims, "VIP")
	case len(faults) > 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonPoolConfigError, fields.Fault(faults)
	case usage.Exact.Total == 0:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonNoAddresses
		ready.Message = "pools of the routing domain reserve every address of spec: nothing can be allocated from this pool"
	}
	meta.SetStatusCondition(&p.Status.Conditions, ready)
	memory.records = len(p.Status.Allocations)
	written, err := d.replaceStatus(ctx, before, p)
	if written {
		memory.written = d.now()
	}
	return reconcile.Result{}, err
}

// allocations lists the addresses of a pool that VIPs have, in numeric order, as many as the status has room for, and counts the others.
func allocations(ctx context.Context, d *desk, p *v1alpha1.ProxyIPPool) (list []v1alpha1.ProxyIPAllocation, more int64) {
	held, total := d.ledger.HeldOf(novaedge.ProxyIPPoolKey(p.Name), []string{novaedge.KindProxyVIP}, maxAllocations)
	for _, h := range held {
		entry := v1alpha1.ProxyIPAllocation{Address: novaedge.Text(h.Range.First), VIPRef: h.Holder.Name}
		if v, there := vipOf(ctx, d, h.Holder.Name); there {
			entry.AllocatedAt = boundSince(v)
		}
		list = append(list, entry)
	}
	return list, total - int64(len(held))
}
