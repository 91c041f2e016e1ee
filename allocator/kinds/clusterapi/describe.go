package clusterapi

import (
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator/kinds/object"
)

// DescribeClaim describes an IPAddressClaim for people.
func DescribeClaim(c *ipamv1.IPAddressClaim) object.Description {
	d := object.Description{Purpose: object.PurposeMachine, AddressObject: c.Status.AddressRef.Name}
	d.Finalizer, _ = SelectFinalizers(c)
	d.SetReason(c.Status.Conditions, ipamv1.IPAddressClaimReadyCondition)
	if cluster := FindClusterName(c); cluster != "" {
		d.Tenant = c.Namespace + "/" + cluster
	}
	return d
}
