package butler

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// readGateway reads spec.gateway as a range of one address, not valid where there is none to keep from everybody: without a gateway, and with
// a link-local one, which is no address of the pool.
func readGateway(p *v1alpha1.NetworkPool, network allocator.Range) (allocator.Range, field.ErrorList) {
	if p.Spec.Gateway == "" {
		return allocator.Range{}, nil
	}
	t := gatewayOf(p)
	a, err := t.Address()
	switch gateway := (allocator.Range{First: a, Last: a}); {
	case err != nil:
		return allocator.Range{}, field.ErrorList{err}
	case !network.IsValid() || a.Is6() && network.First.Is6() && a.IsLinkLocalUnicast() && !network.Covers(gateway):
		return allocator.Range{}, nil
	case !network.Covers(gateway):
		return allocator.Range{}, field.ErrorList{t.Invalid("lies outside spec.cidr %s, and is not link-local IPv6 in an IPv6 pool: correct it or remove it", network.Text())}
	default:
		return gateway, nil
	}
}

func gatewayOf(p *v1alpha1.NetworkPool) fields.Text {
	return fields.At(field.NewPath("spec", "gateway"), p.Spec.Gateway)
}
