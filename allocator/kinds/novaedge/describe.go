package novaedge

import (
	"fmt"

	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
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

// DescribePool describes a ProxyIPPool for people.
func DescribePool(p *v1alpha1.ProxyIPPool) object.PoolDescription {
	d := object.PoolDescription{
		Finalizer: v1alpha1.FinalizerProxyIPPool, Granted: p.Status.Granted, Conditions: p.Status.Conditions,
	}
	if p.Status.Available+p.Status.Allocated > 0 {
		d.Free = ptr.To(p.Status.Available)
	}
	return d
}

// FormatExampleClaim returns the manifest of a ProxyVIP of the first address of a free
// range.
func FormatExampleClaim(p *v1alpha1.ProxyIPPool, free allocator.Range) string {
	field := "address"
	if free.First.Is6() {
		field = "ipv6Address"
	}
	return fmt.Sprintf(`apiVersion: novaedge.io/v1alpha1
kind: ProxyVIP
metadata:
  name: my-vip
spec:
  poolRef:
    name: %s
  mode: L2ARP
  ports: [443]
  %s: "%s"
`, p.Name, field, FormatAddress(free.First))
}
