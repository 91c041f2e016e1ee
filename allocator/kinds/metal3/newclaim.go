package metal3

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// NewClaim returns an IPClaim that requests one address, and the rules that it breaks.
func NewClaim(t object.ClaimTemplate) (*v1alpha1.IPClaim, field.ErrorList) {
	c := &v1alpha1.IPClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPClaim"}, ObjectMeta: t.Metadata,
		Spec: v1alpha1.IPClaimSpec{Pool: corev1.ObjectReference{Name: t.Pool.Name}},
	}
	annotated.FillAddress(c, t.Ranges)
	if t.Tenant != "" {
		object.AddLabels(c, map[string]string{clusterpause.LabelClusterName: t.Tenant})
	}
	return c, ValidateIPClaim(nil, c)
}
