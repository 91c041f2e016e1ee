package novaedge

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// NewClaim returns a ProxyVIP that requests at most one address of each family, and the
// rules that it breaks.
func NewClaim(t object.ClaimTemplate) (*v1alpha1.ProxyVIP, field.ErrorList) {
	v := &v1alpha1.ProxyVIP{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ProxyVIP"}, ObjectMeta: t.Metadata,
		Spec: v1alpha1.ProxyVIPSpec{PoolRef: &v1alpha1.PoolReference{Name: t.Pool.Name}, Mode: v1alpha1.VIPMode(t.Mode)},
	}
	var faults field.ErrorList
	for _, text := range t.Ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			faults = append(faults, field.Invalid(field.NewPath("spec", "ports"), text, "must be a port"))
		}
		v.Spec.Ports = append(v.Spec.Ports, int32(port))
	}
	families := map[bool]bool{}
	for _, r := range t.Ranges {
		if r.First != r.Last || families[r.First.Is4()] {
			faults = append(faults, field.Invalid(field.NewPath("spec", "address"), joinRanges(t.Ranges),
				"must be one address of each family at most"))
		}
		families[r.First.Is4()] = true
		switch {
		case r.First.Is4():
			v.Spec.Address = FormatAddress(r.First)
		default:
			v.Spec.IPv6Address, v.Spec.AddressFamily = FormatAddress(r.First), v1alpha1.FamilyIPv6
		}
	}
	if len(families) == 2 {
		v.Spec.AddressFamily = v1alpha1.FamilyDual
	}
	return v, append(faults, ValidateProxyVIP(v)...)
}

func joinRanges(ranges []allocator.Range) string {
	var texts []string
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, " ")
}
