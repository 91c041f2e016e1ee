package butler

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// parseGateway parses spec.gateway as a range of one address. The range is not valid if
// no address must be reserved: without a gateway, and with a link-local gateway, which is
// outside the pool.
func parseGateway(p *v1alpha1.NetworkPool, network allocator.Range) (allocator.Range, field.ErrorList) {
	if p.Spec.Gateway == "" {
		return allocator.Range{}, nil
	}
	t := gatewayText(p)
	a, err := t.ParseAddress()
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

func gatewayText(p *v1alpha1.NetworkPool) fieldtext.Text {
	return fieldtext.At(field.NewPath("spec", "gateway"), p.Spec.Gateway)
}
