package butler

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// DescribeClaim describes an IPAllocation for people.
func DescribeClaim(a *v1alpha1.IPAllocation) object.Description {
	d := object.Description{
		Purpose: object.PurposeNodes, Tenant: a.Spec.TenantClusterRef.Namespace + "/" + a.Spec.TenantClusterRef.Name,
		AllocatedAt:   ptr.Deref(a.Status.AllocatedAt, metav1.Time{}).Time,
		TenantMissing: meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing),
		Finalizer:     v1alpha1.FinalizerIPAllocation,
	}
	if a.Spec.Type == v1alpha1.TypeLoadBalancer {
		d.Purpose = object.PurposeLoadBalancer
	}
	d.SetReason(a.Status.Conditions, v1alpha1.ConditionReady)
	return d
}
