package webhooks

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools,verbs=get

// networkPools adapts NetworkPools.
type networkPools struct{}

func (networkPools) subject() review.Subject {
	return review.Subject{Kind: v1alpha1.GroupVersion.WithKind("NetworkPool")}
}

func (networkPools) empty() *v1alpha1.NetworkPool { return &v1alpha1.NetworkPool{} }

func (networkPools) pool(p *v1alpha1.NetworkPool) ledger.Pool {
	pool, _ := butler.ConvertPool(p)
	return pool
}

func (networkPools) finalizer(*v1alpha1.NetworkPool) string { return v1alpha1.FinalizerNetworkPool }

func (networkPools) sameOffer(old, p *v1alpha1.NetworkPool) bool {
	return equality.Semantic.DeepEqual(old.Spec, p.Spec)
}

func (networkPools) faults(old, p *v1alpha1.NetworkPool, updating bool) field.ErrorList {
	if updating {
		return butler.ValidateNetworkPoolUpdate(old, p)
	}
	return butler.ValidateNetworkPool(p)
}

func (networkPools) announces() bool { return false }

func (networkPools) warnings(p *v1alpha1.NetworkPool, describeOwner func(netip.Addr) string) []string {
	return butler.FindPoolWarnings(p, describeOwner)
}
