package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Annotations of Services that MetalLB reads, without their prefix.
const (
	metallbAddresses = "loadBalancerIPs"
	metallbPool      = "address-pool"
	metallbSharing   = "allow-shared-ip"
)

// metallbPrefixes are the prefixes of MetalLB's annotations: of current releases, which
// takes precedence, and of older releases.
var metallbPrefixes = []string{"metallb.io/", "metallb.universe.tf/"}

// Service is what decisions need of a Service in a tenant.
type Service struct {
	Key            string       // namespace/name
	IsLoadBalancer bool         // false: the fields below are empty
	Addresses      []netip.Addr // in the status
	Requested      []netip.Addr // in annotation or spec
	Waiting        bool         // no address yet, and an address of the tenant's pool would serve the Service
	WaitingSince   time.Time    // while Waiting
	Refused        bool         // MetalLB has reported that no address is available
	Platform       bool         // the Service belongs to the platform, not to the tenant
	OtherClass     bool         // load balancer class set: another load balancer may serve the Service

	sharing sharing
}

// MetalLB describes what a tenant's MetalLB can serve.
type MetalLB struct {
	Families []corev1.IPFamily // of the addresses in its pools
}

// ServiceOf returns the state of a Service. since is when the Service began to wait, or
// the creation if the beginning was not observed. refused: MetalLB has reported after
// since that no address is available. A Service that an additional address would not help
// does not wait:
//
//	request for an address, or for another MetalLB pool
//	load balancer class set
//	need of a family that the pool lacks, or of two families
//	deletion in progress
func ServiceOf(s *corev1.Service, m MetalLB, since time.Time, refused bool) Service {
	key := s.Namespace + "/" + s.Name
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return Service{Key: key}
	}
	state := Service{
		Key: key, IsLoadBalancer: true, WaitingSince: since, Refused: refused,
		Platform:   s.Labels[v1alpha1.LabelPlatformLB] == "true",
		OtherClass: s.Spec.LoadBalancerClass != nil,
		sharing:    sharingOf(s),
	}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		state.Addresses = appendAddress(state.Addresses, ingress.IP)
	}
	requested := cmp.Or(readAnnotation(s, metallbAddresses), s.Spec.LoadBalancerIP)
	for text := range strings.SplitSeq(requested, ",") {
		state.Requested = appendAddress(state.Requested, strings.TrimSpace(text))
	}
	pool := readAnnotation(s, metallbPool)
	state.Waiting = len(s.Status.LoadBalancer.Ingress) == 0 && s.DeletionTimestamp == nil && requested == "" && m.canServe(s) &&
		s.Spec.LoadBalancerClass == nil && (pool == "" || pool == MetalLBPool)
	return state
}

// TrimService returns a new Service with the fields that ServiceOf reads.
func TrimService(s *corev1.Service) *corev1.Service {
	trimmed := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
			CreationTimestamp: s.CreationTimestamp, DeletionTimestamp: s.DeletionTimestamp,
		},
		Spec: corev1.ServiceSpec{
			Type: s.Spec.Type, LoadBalancerClass: s.Spec.LoadBalancerClass, LoadBalancerIP: s.Spec.LoadBalancerIP,
			IPFamilies: s.Spec.IPFamilies, IPFamilyPolicy: s.Spec.IPFamilyPolicy, ExternalTrafficPolicy: s.Spec.ExternalTrafficPolicy,
		},
	}
	if value, ok := s.Labels[v1alpha1.LabelPlatformLB]; ok {
		trimmed.Labels = map[string]string{v1alpha1.LabelPlatformLB: value}
	}
	for _, prefix := range metallbPrefixes {
		for _, name := range []string{metallbAddresses, metallbPool, metallbSharing} {
			if value, ok := s.Annotations[prefix+name]; ok {
				metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, prefix+name, value)
			}
		}
	}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		trimmed.Spec.Selector = s.Spec.Selector
	}
	for _, p := range s.Spec.Ports {
		trimmed.Spec.Ports = append(trimmed.Spec.Ports, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port})
	}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		trimmed.Status.LoadBalancer.Ingress = append(trimmed.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ingress.IP})
	}
	return trimmed
}

// canServe reports whether an address of one family can serve the Service.
func (m MetalLB) canServe(s *corev1.Service) bool {
	offered := func(f corev1.IPFamily) bool { return slices.Contains(m.Families, f) }
	switch ptr.Deref(s.Spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) {
	case corev1.IPFamilyPolicyRequireDualStack:
		return false
	case corev1.IPFamilyPolicyPreferDualStack:
		return slices.ContainsFunc(s.Spec.IPFamilies, offered)
	}
	return len(s.Spec.IPFamilies) == 0 || offered(s.Spec.IPFamilies[0])
}

// readAnnotation returns one of MetalLB's annotations, "" if it is not set.
func readAnnotation(s *corev1.Service, name string) string {
	for _, prefix := range metallbPrefixes {
		if value, ok := s.Annotations[prefix+name]; ok {
			return value
		}
	}
	return ""
}

// appendAddress appends the address that text contains, and ignores other text.
func appendAddress(to []netip.Addr, text string) []netip.Addr {
	if a, err := netip.ParseAddr(text); err == nil {
		return append(to, a.Unmap())
	}
	return to
}

// Inventory counts the Services of type LoadBalancer of a tenant.
type Inventory struct {
	Platform, Tenant int // with an address
	Waiting          int // without an address, and the tenant's pool could provide an address
	Unserved         int // without an address for another reason
}

// CountServices returns the inventory of Services.
func CountServices(services []Service) (n Inventory) {
	for _, s := range services {
		switch {
		case !s.IsLoadBalancer:
		case len(s.Addresses) > 0 && s.Platform:
			n.Platform++
		case len(s.Addresses) > 0:
			n.Tenant++
		case s.Waiting:
			n.Waiting++
		default:
			n.Unserved++
		}
	}
	return n
}
