package tenants

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// MetalLBPool is the name of the IPAddressPool that a tenant's addresses stand in.
const MetalLBPool = "default-pool"

// Annotations of Services that MetalLB reads, each also under the prefix it had earlier. The first that is there counts.
const (
	metallbAddresses = "loadBalancerIPs"
	metallbPool      = "address-pool"
	metallbSharing   = "allow-shared-ip"
)

var metallbPrefixes = []string{"metallb.io/", "metallb.universe.tf/"}

// Service is a Service of a tenant as far as its address is concerned.
type Service struct {
	Key      string       // namespace/name
	Balancer bool         // it is of type LoadBalancer; all others have nothing below
	Has      []netip.Addr // the addresses it has
	Asks     []netip.Addr // the addresses it asks for by name
	Waits    bool         // it has none, and an address of ours could serve it
	Since    time.Time    // when it began to wait, if it does
	Refused  bool         // MetalLB has said that it has no address for it
	Platform bool         // it belongs to the platform rather than to the tenant

	sharing sharing
}

// sharing says with which other Services a Service may have one address.
type sharing struct {
	key, backend string
	ports        []string // protocol and number
}

// MetalLB is which Services a tenant's MetalLB serves, and with what.
type MetalLB struct {
	Families []corev1.IPFamily // of the addresses in its pools
}

// ServiceOf reads a Service. since is when it began to wait or, if it was not seen to, when it was created; refused, that MetalLB has
// said since then that it has no address for it.
//
// One address more does not help a Service that asks for a certain address or for another MetalLB pool, that has another class, that needs
// another family or two of them, or that is going: they do not wait.
func ServiceOf(s *corev1.Service, m MetalLB, since time.Time, refused bool) Service {
	key := s.Namespace + "/" + s.Name
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return Service{Key: key}
	}
	served := Service{
		Key: key, Balancer: true, Since: since, Refused: refused,
		Platform: s.Labels[v1alpha1.LabelPlatformLB] == "true",
		sharing:  sharingOf(s),
	}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		served.Has = appendAddress(served.Has, ingress.IP)
	}
	asks := cmp.Or(annotation(s, metallbAddresses), s.Spec.LoadBalancerIP)
	for text := range strings.SplitSeq(asks, ",") {
		served.Asks = appendAddress(served.Asks, strings.TrimSpace(text))
	}
	pool := annotation(s, metallbPool)
	served.Waits = len(s.Status.LoadBalancer.Ingress) == 0 && s.DeletionTimestamp == nil && asks == "" && m.suits(s) &&
		s.Spec.LoadBalancerClass == nil && (pool == "" || pool == MetalLBPool)
	return served
}

// Lean is what of a Service ServiceOf reads, as a Service of its own, so that the rest can go.
func Lean(s *corev1.Service) *corev1.Service {
	lean := &corev1.Service{
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
		lean.Labels = map[string]string{v1alpha1.LabelPlatformLB: value}
	}
	for _, prefix := range metallbPrefixes {
		for _, name := range []string{metallbAddresses, metallbPool, metallbSharing} {
			if value, ok := s.Annotations[prefix+name]; ok {
				metav1.SetMetaDataAnnotation(&lean.ObjectMeta, prefix+name, value)
			}
		}
	}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		lean.Spec.Selector = s.Spec.Selector
	}
	for _, p := range s.Spec.Ports {
		lean.Spec.Ports = append(lean.Spec.Ports, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port})
	}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		lean.Status.LoadBalancer.Ingress = append(lean.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ingress.IP})
	}
	return lean
}

// suits tells whether an address of one family can serve the Service.
func (m MetalLB) suits(s *corev1.Service) bool {
	offered := func(f corev1.IPFamily) bool { return slices.Contains(m.Families, f) }
	switch ptr.Deref(s.Spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) {
	case corev1.IPFamilyPolicyRequireDualStack:
		return false
	case corev1.IPFamilyPolicyPreferDualStack:
		return slices.ContainsFunc(s.Spec.IPFamilies, offered)
	}
	return len(s.Spec.IPFamilies) == 0 || offered(s.Spec.IPFamilies[0])
}

// sharingOf reads what MetalLB compares before it gives one address to two Services: the same key, no port in common and, where
// traffic stays on its node, the same pods.
func sharingOf(s *corev1.Service) sharing {
	sh := sharing{key: annotation(s, metallbSharing)}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		sh.backend = labels.Set(s.Spec.Selector).String()
	}
	for _, p := range s.Spec.Ports {
		sh.ports = append(sh.ports, string(p.Protocol)+"/"+strconv.Itoa(int(p.Port)))
	}
	return sh
}

func annotation(s *corev1.Service, name string) string {
	for _, prefix := range metallbPrefixes {
		if value, ok := s.Annotations[prefix+name]; ok {
			return value
		}
	}
	return ""
}

// appendAddress adds what can be read of text.
func appendAddress(to []netip.Addr, text string) []netip.Addr {
	if a, err := netip.ParseAddr(text); err == nil {
		return append(to, a.Unmap())
	}
	return to
}

// maxShared is how many ports are compared at most to find which Services may share an address. Those that are left then count as sharing none.
const maxShared = 1 << 20

// addressesFor is how many addresses Services need that have none: one each, or one for several that may share it. It is found by giving
// each to the first that it fits, as MetalLB does.
func addressesFor(waiting []Service) (n int32) {
	compared := 0
	type address map[string]bool // ports that are used
	type users struct {
		addresses []address
		full      map[string]int // port -> how many of the first addresses have it all
	}
	shared := map[[2]string]*users{} // key and backend ->
	for _, s := range waiting {
		if s.sharing.key == "" || compared >= maxShared {
			n++
			continue
		}
		with := [2]string{s.sharing.key, s.sharing.backend}
		u := shared[with]
		if u == nil {
			u = &users{full: map[string]int{}}
			shared[with] = u
		}
		at := 0
		for _, port := range s.sharing.ports {
			at = max(at, u.full[port])
		}
		for at < len(u.addresses) && slices.ContainsFunc(s.sharing.ports, func(port string) bool { compared++; return u.addresses[at][port] }) {
			at++
		}
		if at == len(u.addresses) {
			u.addresses = append(u.addresses, address{})
			n++
		}
		for _, port := range s.sharing.ports {
			u.addresses[at][port] = true
			for u.full[port] < len(u.addresses) && u.addresses[u.full[port]][port] {
				u.full[port]++
			}
		}
	}
	return n
}

// Inventory counts a tenant's Services of type LoadBalancer.
type Inventory struct {
	Platform, Tenant int // with an address
	Waiting          int // without one that an address of ours could serve
	Unserved         int // without one for another reason
}

// InventoryOf counts Services.
func InventoryOf(services []Service) (n Inventory) {
	for _, s := range services {
		switch {
		case !s.Balancer:
		case len(s.Has) > 0 && s.Platform:
			n.Platform++
		case len(s.Has) > 0:
			n.Tenant++
		case s.Waits:
			n.Waiting++
		default:
			n.Unserved++
		}
	}
	return n
}
