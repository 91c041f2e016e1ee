package metal3

import (
	"fmt"

	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// DescribeClaim describes an IPClaim for people.
func DescribeClaim(c *v1alpha1.IPClaim) object.Description {
	d := object.Description{Purpose: object.PurposeMachine, Reason: ptr.Deref(c.Status.ErrorMessage, ""), Finalizer: v1alpha1.FinalizerIPClaim}
	if c.Status.Address != nil {
		d.AddressObject = c.Status.Address.Name
	}
	if cluster := c.Labels[clusterpause.LabelClusterName]; cluster != "" {
		d.Tenant = c.Namespace + "/" + cluster
	}
	return d
}

// DescribePool describes an IPPool for people.
func DescribePool(p *v1alpha1.IPPool) object.PoolDescription {
	d := object.PoolDescription{Finalizer: v1alpha1.FinalizerIPPool, Free: p.Status.AvailableIPCount}
	if IsIndexFull(p) {
		d.FullLists = []object.FullList{{
			Text:   fmt.Sprintf("lists %d claims in status.indexes, which has no room for more", len(p.Status.Indexes)),
			Remedy: "use several pools, or shorter names: further claims own their addresses without being listed",
		}}
	}
	return d
}
