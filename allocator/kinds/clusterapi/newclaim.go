package clusterapi

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/object"
)

// NewClaim returns an IPAddressClaim that requests one address, and the rules that it
// breaks.
func NewClaim(t object.ClaimTemplate) (*ipamv1.IPAddressClaim, field.ErrorList) {
	_, group, _ := strings.Cut(t.Pool.Resource, ".")
	kind := "IPPool"
	if t.Pool.Resource == butler.ResourceNetworkPool {
		kind = "NetworkPool"
	}
	c := &ipamv1.IPAddressClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPAddressClaim"}, ObjectMeta: t.Metadata,
		Spec: ipamv1.IPAddressClaimSpec{
			ClusterName: t.Tenant, PoolRef: ipamv1.IPPoolReference{APIGroup: group, Kind: kind, Name: t.Pool.Name},
		},
	}
	annotated.FillAddress(c, t.Ranges)
	return c, ValidateIPAddressClaim(nil, c)
}
