package services

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/allocator/ledger/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Reasons of events on a Service, which are the product's.
const (
	eventCreated           = "VIPCreated"
	eventInvalidMode       = "InvalidVIPMode"
	eventInvalidAnnotation = "InvalidAnnotation"
	eventNoAddress         = "IPAllocationFailed"
	eventNotCreated        = "VIPCreateFailed"
)

// classPrefix is that of the load balancer classes that are this one's. A Service of another class is somebody else's.
const classPrefix = "novaedge.io/"

// asks tells whether a Service is to have a ProxyVIP.
func asks(s *corev1.Service) bool {
	_, annotated := s.Annotations[v1alpha1.AnnotationVIPMode]
	return annotated && s.UID != "" && s.DeletionTimestamp == nil && s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(s.Spec.LoadBalancerClass == nil || strings.HasPrefix(*s.Spec.LoadBalancerClass, classPrefix))
}

// vipName is the name of the ProxyVIP of a Service: 131 characters at most, of the 253 that there are.
func vipName(service types.NamespacedName) string {
	return "svc-" + service.Namespace + "." + service.Name
}

// serviceNamed is the Service whose ProxyVIP has a name; false where that is none's.
func serviceNamed(vip string) (types.NamespacedName, bool) {
	name, isOf := strings.CutPrefix(vip, "svc-")
	namespace, name, _ := strings.Cut(name, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, isOf && namespace != "" && name != "" && !strings.Contains(name, ".")
}

// poolOf is the pool that a Service takes its addresses from.
func poolOf(s *corev1.Service) string { return poolNamed(s.Annotations) }

func poolNamed(annotations map[string]string) string {
	if pool := annotations[v1alpha1.AnnotationAddressPool]; pool != "" {
		return pool
	}
	return v1alpha1.DefaultAddressPool
}

// What is said of other namespaces to who deals with ProxyVIPs, which are of no namespace.
var (
	ofService   = regexp.MustCompile(`by proxyvips/svc-([a-z0-9-]+)\.[a-z0-9-]+`)
	ofNamespace = regexp.MustCompile(`by [a-z]+/[a-z0-9.-]+ in namespace ([a-z0-9-]+)`)
	ofPool      = regexp.MustCompile(`in pool ([a-z0-9-]+)/[a-z0-9.-]+`)
)

// discreet is a text as who sees a namespace may read it: that something is held in another, not by what.
func discreet(text, namespace string) string {
	for _, c := range []struct {
		names *regexp.Regexp
		says  string
	}{{ofService, "for a Service of another namespace"}, {ofNamespace, "in another namespace"}, {ofPool, "in a pool of another namespace"}} {
		text = c.names.ReplaceAllStringFunc(text, func(found string) string {
			if c.names.FindStringSubmatch(found)[1] == namespace {
				return found
			}
			return c.says
		})
	}
	return text
}

// refusal says why a Service does not get what it asks for, as an event.
type refusal struct {
	reason, message string
	forPool         bool // a change of the pool may end it
}

func (r *refusal) Error() string { return r.message }

// The fields of a ProxyVIP's spec that annotations hold as JSON: annotation -> field.
var verbatim = map[string]string{
	v1alpha1.AnnotationBGPConfig:    "bgpConfig",
	v1alpha1.AnnotationOSPFConfig:   "ospfConfig",
	v1alpha1.AnnotationNodeSelector: "nodeSelector",
}

// maxVerbatim is how many bytes each of them may have: all of them together, and each as much larger as JSON may write it, leave room in etcd.
const maxVerbatim = 16 << 10

// specOf is what a Service says of the spec of its ProxyVIP: field -> value, nil for those that are not to be there. Fields that it says
// nothing of are the allocator's, or somebody else's. The error is a *refusal.
func specOf(s *corev1.Service) (map[string]any, error) {
	mode := v1alpha1.VIPMode(s.Annotations[v1alpha1.AnnotationVIPMode])
	if modes := []v1alpha1.VIPMode{v1alpha1.ModeL2ARP, v1alpha1.ModeBGP, v1alpha1.ModeOSPF}; !slices.Contains(modes, mode) {
		return nil, &refusal{eventInvalidMode, fmt.Sprintf("annotation %s is %q: it must be one of %q", v1alpha1.AnnotationVIPMode, fields.Short(string(mode)), modes), false}
	}
	fault := func(annotation, format string, args ...any) (map[string]any, error) {
		return nil, &refusal{eventInvalidAnnotation, fmt.Sprintf("annotation %s is %q: %s", annotation, fields.Short(s.Annotations[annotation]), fmt.Sprintf(format, args...)), false}
	}
	family := v1alpha1.AddressFamily(s.Annotations[v1alpha1.AnnotationAddressFamily])
	if family == "" {
		family = v1alpha1.FamilyIPv4
	}
	if families := []v1alpha1.AddressFamily{v1alpha1.FamilyIPv4, v1alpha1.FamilyIPv6, v1alpha1.FamilyDual}; !slices.Contains(families, family) {
		return fault(v1alpha1.AnnotationAddressFamily, "it must be one of %q", families)
	}
	var ports []any
	for _, p := range s.Spec.Ports {
		if port := int64(p.Port); !slices.Contains(ports, any(port)) { // one for TCP and UDP
			ports = append(ports, port)
		}
	}
	spec := map[string]any{
		"mode": string(mode), "addressFamily": string(family), "ports": ports, "poolRef": map[string]any{"name": poolOf(s)}, "bfd": nil,
	}
	for _, annotation := range slices.Sorted(maps.Keys(verbatim)) {
		spec[verbatim[annotation]] = nil
		text := s.Annotations[annotation]
		if text == "" {
			continue
		}
		if len(text) > maxVerbatim {
			return fault(annotation, "it has %d bytes, and at most %d are taken", len(text), maxVerbatim)
		}
		var value map[string]any
		if err := utiljson.Unmarshal([]byte(text), &value); err != nil || value == nil {
			return fault(annotation, "it must be a JSON object, such as %s", `{"key": "value"}`)
		}
		spec[verbatim[annotation]] = value
	}
	if text := s.Annotations[v1alpha1.AnnotationBFDEnabled]; text != "" {
		enabled, err := strconv.ParseBool(text)
		if err != nil {
			return fault(v1alpha1.AnnotationBFDEnabled, "it must be true or false")
		}
		if enabled {
			spec["bfd"] = map[string]any{"enabled": true}
		}
	}
	// What the family does not have goes, and what the Service asks for by itself comes.
	switch family {
	case v1alpha1.FamilyIPv4:
		spec["ipv6Address"] = nil
	case v1alpha1.FamilyIPv6:
		spec["address"] = nil
	}
	if text := s.Spec.LoadBalancerIP; text != "" {
		field := "address"
		if a, err := netip.ParseAddr(text); err == nil && a.Is6() {
			field = "ipv6Address"
		}
		spec[field] = text
	}
	return spec, nil
}

// fill writes what a Service says into its ProxyVIP, and leaves the rest as it is.
func fill(vip *unstructured.Unstructured, s *corev1.Service, spec map[string]any) {
	vip.SetLabels(merged(vip.GetLabels(), marks(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})))
	vip.SetAnnotations(merged(vip.GetAnnotations(), map[string]string{v1alpha1.AnnotationServiceUID: string(s.UID)}))
	for field, value := range spec {
		if value == nil {
			unstructured.RemoveNestedField(vip.Object, "spec", field)
			continue
		}
		// The only error is a spec that is no object, which no ProxyVIP has.
		_ = unstructured.SetNestedField(vip.Object, value, "spec", field)
	}
}

func merged(into, more map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, more)
	return into
}

// typed is a ProxyVIP as far as addresses go.
func typed(vip *unstructured.Unstructured) (*v1alpha1.ProxyVIP, error) {
	text, err := json.Marshal(vip)
	if err != nil {
		return nil, err
	}
	v := &v1alpha1.ProxyVIP{}
	return v, json.Unmarshal(text, v)
}

// ingress is what the status of a Service says of its ProxyVIP: nothing while it lacks an address, nobody gave it those that it names, or others have one
// of them.
func ingress(v *v1alpha1.ProxyVIP) []corev1.LoadBalancerIngress {
	held, _ := novaedge.InSpec(v)
	given := v.Annotations[butlerv1.AnnotationGrant] != "" || meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionBound)
	if !held.Complete(v) || !given || novaedge.Flagged(v) {
		return nil
	}
	var all []corev1.LoadBalancerIngress
	for _, r := range held.Ranges() {
		all = append(all, corev1.LoadBalancerIngress{IP: r.First.String()})
	}
	return all
}

func sameIPs(a, b []corev1.LoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.LoadBalancerIngress) bool { return x.IP == y.IP && x.Hostname == y.Hostname })
}
