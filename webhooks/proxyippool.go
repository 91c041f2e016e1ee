package webhooks

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// +kubebuilder:rbac:groups=novaedge.io,resources=proxyippools,verbs=get

// proxyIPPools adapts ProxyIPPools.
type proxyIPPools struct{}

func (proxyIPPools) subject() review.Subject {
	return review.Subject{Kind: v1alpha1.GroupVersion.WithKind("ProxyIPPool"), ClusterScoped: true}
}

func (proxyIPPools) empty() *v1alpha1.ProxyIPPool { return &v1alpha1.ProxyIPPool{} }

func (proxyIPPools) pool(p *v1alpha1.ProxyIPPool) ledger.Pool {
	pool, _ := novaedge.ConvertPool(p)
	return pool
}

func (proxyIPPools) finalizer(*v1alpha1.ProxyIPPool) string { return v1alpha1.FinalizerProxyIPPool }

func (proxyIPPools) sameOffer(old, p *v1alpha1.ProxyIPPool) bool {
	return equality.Semantic.DeepEqual(old.Spec, p.Spec) && old.Labels[butlerv1.LabelRoutingDomain] == p.Labels[butlerv1.LabelRoutingDomain]
}

func (proxyIPPools) faults(old, p *v1alpha1.ProxyIPPool, updating bool) field.ErrorList {
	if updating {
		return novaedge.ValidateProxyIPPoolUpdate(old, p)
	}
	return novaedge.ValidateProxyIPPool(p)
}

func (proxyIPPools) announces() bool { return true }

func (proxyIPPools) warnings(p *v1alpha1.ProxyIPPool, _ func(netip.Addr) string) []string {
	return novaedge.FindPoolWarnings(p)
}
