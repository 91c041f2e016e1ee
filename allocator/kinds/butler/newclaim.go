package butler

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// NewClaim returns an IPAllocation that requests one range, and the rules that it breaks.
func NewClaim(t object.ClaimTemplate) (*v1alpha1.IPAllocation, field.ErrorList) {
	namespace, name, _ := strings.Cut(t.Tenant, "/")
	a := &v1alpha1.IPAllocation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPAllocation"}, ObjectMeta: t.Metadata,
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: t.Pool.Name},
			Type:             v1alpha1.IPAllocationType(t.Purpose),
			PinnedRange:      FormatPinnedRange(t.Ranges[0]),
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Namespace: namespace, Name: name},
		},
	}
	return a, ValidateIPAllocation(a)
}
