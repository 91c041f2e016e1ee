package butler

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
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

// DescribePool describes a NetworkPool for people.
func DescribePool(p *v1alpha1.NetworkPool) object.PoolDescription {
	d := object.PoolDescription{
		Finalizer: v1alpha1.FinalizerNetworkPool, Granted: p.Status.GrantedIPs, Conditions: p.Status.Conditions,
		Releases: listReleases(p),
		DefaultCounts: []object.DefaultCount{
			{Purpose: object.PurposeNodes, Count: defaultCount(v1alpha1.TypeNodes, p)},
			{Purpose: object.PurposeLoadBalancer, Count: defaultCount(v1alpha1.TypeLoadBalancer, p)},
		},
	}
	if p.Status.TotalIPs > 0 {
		d.Free = ptr.To(p.Status.AvailableIPs)
	}
	if n := UnlistedInfrastructure(p); n > 0 {
		d.FullLists = []object.FullList{{
			Text: fmt.Sprintf("does not list %d of %d addresses in status.infrastructureAllocations, which has no more room",
				n, p.Status.InfrastructureConsumedIPs),
			Remedy: "nothing: these addresses are not allocated either",
		}}
	}
	return d
}

// defaultCount returns the number of addresses of an allocation of a type that requests
// no number.
func defaultCount(of v1alpha1.IPAllocationType, p *v1alpha1.NetworkPool) int64 {
	return int64(RequestedCount(&v1alpha1.IPAllocation{Spec: v1alpha1.IPAllocationSpec{Type: of}}, p))
}

// listReleases returns the release records of a pool that can be parsed.
func listReleases(p *v1alpha1.NetworkPool) (list []object.Release) {
	for _, released := range p.Status.Releases {
		r, err := allocator.ParseRange(released.StartAddress + "-" + released.EndAddress)
		if err != nil {
			continue
		}
		list = append(list, object.Release{
			Claim: IPAllocationKey(p.Namespace, released.Name), Range: r,
			Tenant:      released.Tenant.Namespace + "/" + released.Tenant.Name,
			AllocatedAt: ptr.Deref(released.AllocatedAt, metav1.Time{}).Time, ReleasedAt: released.ReleasedAt.Time,
			ReusableAt: ptr.Deref(released.ReusableAt, metav1.Time{}).Time,
		})
	}
	return list
}
