package webhooks

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// proxyVIPs adapts ProxyVIPs: the allocation is spec.address and spec.ipv6Address. A VIP
// whose request cannot be met is denied.
type proxyVIPs struct{}

func (proxyVIPs) subject() review.Subject {
	spec := field.NewPath("spec")
	return review.Subject{
		Kind: v1alpha1.GroupVersion.WithKind("ProxyVIP"),
		ExactPath: func(r allocator.Range) *field.Path {
			if r.First.Is6() {
				return spec.Child("ipv6Address")
			}
			return spec.Child("address")
		},
		CountPath:     spec.Child("poolRef"),
		FamilyPath:    spec.Child("addressFamily"),
		ClusterScoped: true,
	}
}

func (proxyVIPs) newObject() *v1alpha1.ProxyVIP { return &v1alpha1.ProxyVIP{} }

func (proxyVIPs) parts(v *v1alpha1.ProxyVIP) (metadata *metav1.ObjectMeta, spec any) {
	return &v.ObjectMeta, &v.Spec
}

func (proxyVIPs) unreadFields() []string { return []string{"mode", "ports"} }

func (proxyVIPs) toClaim(v *v1alpha1.ProxyVIP) ledger.Claim { return novaedge.ConvertClaim(v) }

func (proxyVIPs) hasAddresses(v *v1alpha1.ProxyVIP) bool {
	return novaedge.FindAddresses(v).IsComplete(v)
}

func (proxyVIPs) isDeniedByStatus(v *v1alpha1.ProxyVIP) bool {
	return meta.IsStatusConditionFalse(v.Status.Conditions, v1alpha1.ConditionBound)
}

func (proxyVIPs) awaitsStatus(stored, v *v1alpha1.ProxyVIP) bool {
	return novaedge.AwaitsStatus(stored, v)
}

func (proxyVIPs) withoutAddresses(v *v1alpha1.ProxyVIP) *v1alpha1.ProxyVIP {
	v = v.DeepCopy()
	v.Spec.Address, v.Spec.IPv6Address, v.Status = "", "", v1alpha1.ProxyVIPStatus{}
	return v
}

func (proxyVIPs) changesAddresses(old, v *v1alpha1.ProxyVIP) bool {
	return novaedge.ChangesAddresses(old, v)
}

func (proxyVIPs) findFaults(old, v *v1alpha1.ProxyVIP) field.ErrorList {
	if old == nil {
		return novaedge.ValidateProxyVIP(v)
	}
	return novaedge.ValidateProxyVIPUpdate(old, v)
}

func (proxyVIPs) requests(_ context.Context, v *v1alpha1.ProxyVIP, _ client.Reader) ([]ledger.RangeRequest, error) {
	return novaedge.BuildRequests(v), nil
}

func (proxyVIPs) readLedgerPool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return readLedgerPool(ctx, proxyIPPools{}, k, pools)
}

func (proxyVIPs) fillSpec(v *v1alpha1.ProxyVIP, ranges []allocator.Range) (warnings []string) {
	for _, t := range novaedge.FindIgnoredPrefixes(v) {
		warnings = append(warnings, fmt.Sprintf("%s: %s is a single address; the prefix length is ignored", t.Path, t.Value))
	}
	novaedge.FillSpec(v, ranges)
	return warnings
}

func (proxyVIPs) restoreSpec(stored, updated *v1alpha1.ProxyVIP) {
	novaedge.FitFamily(stored, updated)
	novaedge.RestoreSpec(stored, updated)
}

func (proxyVIPs) setOrigin(stored, answered *v1alpha1.ProxyVIP, requests []ledger.RangeRequest) {
	novaedge.SetOrigin(stored, answered, requests)
}

func (proxyVIPs) completeMetadata(v *v1alpha1.ProxyVIP, routingDomain string) {
	novaedge.CompleteMetadata(v, routingDomain)
}
