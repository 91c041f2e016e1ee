package novaedge

import (
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// DescribeClaim describes a ProxyVIP for people.
func DescribeClaim(v *v1alpha1.ProxyVIP) object.Description {
	d := object.Description{Purpose: object.PurposeVIP, Mode: string(v.Spec.Mode), Ports: v.Spec.Ports}
	d.SetReason(v.Status.Conditions, v1alpha1.ConditionBound)
	if name := v.Labels[v1alpha1.LabelServiceName]; name != "" {
		d.Tenant = v.Labels[v1alpha1.LabelServiceNamespace] + "/" + name
	}
	return d
}
