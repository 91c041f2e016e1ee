package webhooks

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools,verbs=get

// ipPools adapts IPPools.
type ipPools struct{ clusters clusterpause.Clusters }

func (ipPools) subject() review.Subject {
	return review.Subject{Kind: v1alpha1.GroupVersion.WithKind("IPPool")}
}

func (ipPools) empty() *v1alpha1.IPPool { return &v1alpha1.IPPool{} }

func (ipPools) pool(p *v1alpha1.IPPool) ledger.Pool {
	pool, _ := metal3.ConvertPool(p, metal3.NewRandomSource())
	return pool
}

// finalizer returns "" for a pool that the manager must not write to, such as a paused
// pool: the manager could not remove the finalizer. The reconciler adds the finalizer
// when the pool is managed.
func (a ipPools) finalizer(p *v1alpha1.IPPool) string {
	if clusterpause.IsMarkedMoved(p) || metal3.CheckPoolWait(p, a.clusters) != nil {
		return ""
	}
	return v1alpha1.FinalizerIPPool
}

func (ipPools) sameOffer(old, p *v1alpha1.IPPool) bool {
	return equality.Semantic.DeepEqual(old.Spec, p.Spec) && old.Labels[butlerv1.LabelRoutingDomain] == p.Labels[butlerv1.LabelRoutingDomain] &&
		old.Annotations[butlerv1.AnnotationReuseDelay] == p.Annotations[butlerv1.AnnotationReuseDelay]
}

func (ipPools) faults(old, p *v1alpha1.IPPool, updating bool) field.ErrorList {
	if updating {
		return metal3.ValidateIPPoolUpdate(old, p)
	}
	return metal3.ValidateIPPool(p)
}

func (ipPools) announces() bool { return false }

func (ipPools) warnings(p *v1alpha1.IPPool, _ func(netip.Addr) string) []string {
	return metal3.FindPoolWarnings(p)
}
