package webhooks

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/novaedge"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// proxyVIPs adapts ProxyVIPs: the answer is spec.address and spec.ipv6Address.
type proxyVIPs struct{ strict[*v1alpha1.ProxyVIP] }

func (proxyVIPs) subject() subject {
	spec := field.NewPath("spec")
	return subject{
		kind: v1alpha1.GroupVersion.WithKind("ProxyVIP"),
		exact: func(r allocator.Range) *field.Path {
			if r.First.Is6() {
				return spec.Child("ipv6Address")
			}
			return spec.Child("address")
		},
		count:         spec.Child("poolRef"),
		family:        spec.Child("addressFamily"),
		clusterScoped: true,
	}
}

func (proxyVIPs) decode(raw []byte, stored bool) (*v1alpha1.ProxyVIP, error) {
	v := &v1alpha1.ProxyVIP{}
	if stored {
		return v, decode(raw, v, "proxyvip")
	}
	return v, decode(raw, &struct {
		Metadata *metav1.ObjectMeta     `json:"metadata"`
		Spec     *v1alpha1.ProxyVIPSpec `json:"spec"`
	}{&v.ObjectMeta, &v.Spec}, "proxyvip")
}

func (proxyVIPs) claim(v *v1alpha1.ProxyVIP) ledger.Claim { return novaedge.ClaimOf(v) }

func (proxyVIPs) answered(v *v1alpha1.ProxyVIP) bool { return novaedge.Held(v).Complete(v) }

func (proxyVIPs) failed(v *v1alpha1.ProxyVIP) bool {
	return meta.IsStatusConditionFalse(v.Status.Conditions, v1alpha1.ConditionBound)
}

func (proxyVIPs) unanswered(v *v1alpha1.ProxyVIP) *v1alpha1.ProxyVIP {
	v = v.DeepCopy()
	v.Spec.Address, v.Spec.IPv6Address, v.Status = "", "", v1alpha1.ProxyVIPStatus{}
	return v
}

func (proxyVIPs) follow(p *patch, old, v *v1alpha1.ProxyVIP) {
	followPool(p, old, v, novaedge.ClaimOf(old).Pool, novaedge.ClaimOf(v).Pool)
}

func (proxyVIPs) moves(old, v *v1alpha1.ProxyVIP) bool { return novaedge.Asks(old, v) }

func (proxyVIPs) faults(old, v *v1alpha1.ProxyVIP) field.ErrorList {
	if old == nil {
		return novaedge.ValidateProxyVIP(v)
	}
	return novaedge.ValidateProxyVIPUpdate(old, v)
}

func (proxyVIPs) wants(_ context.Context, v *v1alpha1.ProxyVIP, _ client.Reader) ([]ledger.Want, error) {
	return novaedge.WantsOf(v), nil
}

func (proxyVIPs) pool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return storedPool(ctx, proxyIPPools{}, k, pools)
}

func (proxyVIPs) fill(p *patch, v *v1alpha1.ProxyVIP, ranges []allocator.Range) (warnings []string) {
	for _, t := range novaedge.PrefixesThatSayNothing(v) {
		warnings = append(warnings, fmt.Sprintf("%s: %s is the one address; its prefix length says nothing", t.Path, t.Value))
	}
	p.spec(novaedge.Fill(v, ranges))
	return warnings
}

func (proxyVIPs) restore(p *patch, stored, updated *v1alpha1.ProxyVIP) {
	p.spec(novaedge.FitFamily(stored, updated))
	p.spec(novaedge.Restore(stored, updated))
}

func (proxyVIPs) complete(p *patch, v *v1alpha1.ProxyVIP, space string) {
	p.entries("labels", v.Labels, novaedge.MissingLabels(v, space))
}

// spec sets fields of spec, and removes those with an empty value: name -> value.
func (p *patch) spec(values map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] == "" {
			p.remove("spec", name)
		} else {
			p.set(values[name], "spec", name)
		}
	}
}
