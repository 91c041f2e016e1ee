package services

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
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

// classPrefix begins the load balancer classes of NovaEdge. Services of other classes are
// not managed.
const classPrefix = "novaedge.io/"

// requestsVIP reports whether a Service requests a ProxyVIP.
func requestsVIP(s *corev1.Service) bool {
	_, annotated := s.Annotations[v1alpha1.AnnotationVIPMode]
	return annotated && s.UID != "" && s.DeletionTimestamp == nil && s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(s.Spec.LoadBalancerClass == nil || strings.HasPrefix(*s.Spec.LoadBalancerClass, classPrefix))
}

// vipName returns the name of the ProxyVIP of a Service: at most 131 of 253 characters.
func vipName(service types.NamespacedName) string {
	return "svc-" + service.Namespace + "." + service.Name
}

// serviceOfVIP returns the Service in the name of a ProxyVIP; false if the name is not of
// the form svc-NAMESPACE.NAME.
func serviceOfVIP(vip string) (types.NamespacedName, bool) {
	name, isOf := strings.CutPrefix(vip, "svc-")
	namespace, name, _ := strings.Cut(name, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, isOf && namespace != "" && name != "" && !strings.Contains(name, ".")
}

// poolOf returns the pool of a Service.
func poolOf(s *corev1.Service) string { return poolNamed(s.Annotations) }

func poolNamed(annotations map[string]string) string {
	if pool := annotations[v1alpha1.AnnotationAddressPool]; pool != "" {
		return pool
	}
	return v1alpha1.DefaultAddressPool
}

// denial is why a Service does not get what it requests, as an event.
type denial struct {
	reason, message string
	forPool         bool   // a change of the pool may end it
	transient       bool   // it may end by itself, within two minutes
	field           string // of the ProxyVIP, for which the allocator denied the request; "" for none
}

// awaitsPool reports whether only a change of the pool, or of the Service, ends the
// denial.
func (r *denial) awaitsPool() bool { return r.forPool && !r.transient }

func (r *denial) Error() string { return r.message }

// jsonFields are the fields of a ProxyVIP's spec that annotations contain as JSON:
// annotation -> field.
var jsonFields = map[string]string{
	v1alpha1.AnnotationBGPConfig:    "bgpConfig",
	v1alpha1.AnnotationOSPFConfig:   "ospfConfig",
	v1alpha1.AnnotationNodeSelector: "nodeSelector",
}

// maxJSONBytes bounds each JSON annotation: the JSON annotations together, as large as
// JSON may encode them, fit into etcd.
const maxJSONBytes = 16 << 10

// specOf returns the fields of the ProxyVIP's spec that a Service sets: field -> value,
// nil for a field to remove. The remaining fields belong to the allocator or to other
// clients. The error is a *denial.
func specOf(s *corev1.Service) (map[string]any, error) {
	mode := v1alpha1.VIPMode(s.Annotations[v1alpha1.AnnotationVIPMode])
	if modes := []v1alpha1.VIPMode{v1alpha1.ModeL2ARP, v1alpha1.ModeBGP, v1alpha1.ModeOSPF}; !slices.Contains(modes, mode) {
		return nil, &denial{reason: eventInvalidMode, message: fmt.Sprintf("annotation %s is %q: it must be one of %q", v1alpha1.AnnotationVIPMode, fieldtext.Shorten(string(mode)), modes)}
	}
	fault := func(annotation, format string, args ...any) (map[string]any, error) {
		return nil, &denial{reason: eventInvalidAnnotation, message: fmt.Sprintf("annotation %s is %q: %s", annotation, fieldtext.Shorten(s.Annotations[annotation]), fmt.Sprintf(format, args...))}
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
	for _, annotation := range slices.Sorted(maps.Keys(jsonFields)) {
		spec[jsonFields[annotation]] = nil
		text := s.Annotations[annotation]
		if text == "" {
			continue
		}
		if len(text) > maxJSONBytes {
			return fault(annotation, "it has %d bytes, and at most %d are taken", len(text), maxJSONBytes)
		}
		var value map[string]any
		if err := utiljson.Unmarshal([]byte(text), &value); err != nil || value == nil {
			return fault(annotation, "it must be a JSON object, such as %s", `{"key": "value"}`)
		}
		spec[jsonFields[annotation]] = value
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

// applySpec writes the fields of a Service into the ProxyVIP, and keeps the remaining
// fields.
func applySpec(vip *unstructured.Unstructured, s *corev1.Service, spec map[string]any) {
	vip.SetLabels(mergeMaps(vip.GetLabels(), vipLabels(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})))
	vip.SetAnnotations(mergeMaps(vip.GetAnnotations(), map[string]string{v1alpha1.AnnotationServiceUID: string(s.UID)}))
	for field, value := range spec {
		if value == nil {
			unstructured.RemoveNestedField(vip.Object, "spec", field)
			continue
		}
		// The only error is a spec that is no object, which no ProxyVIP has.
		_ = unstructured.SetNestedField(vip.Object, value, "spec", field)
	}
}

func mergeMaps(into, more map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, more)
	return into
}

// toTyped converts a ProxyVIP to its Go type.
func toTyped(vip *unstructured.Unstructured) (*v1alpha1.ProxyVIP, error) {
	text, err := json.Marshal(vip)
	if err != nil {
		return nil, err
	}
	v := &v1alpha1.ProxyVIP{}
	return v, json.Unmarshal(text, v)
}

// ingressOf returns the ingress of a Service's status: empty while the ProxyVIP lacks an
// address, owns its addresses without a grant, or is in conflict.
func ingressOf(v *v1alpha1.ProxyVIP) []corev1.LoadBalancerIngress {
	owned, _ := novaedge.ParseSpecAddresses(v)
	given := v.Annotations[butlerv1.AnnotationGrant] != "" || meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionBound)
	if !owned.IsComplete(v) || !given || novaedge.IsFlagged(v) {
		return nil
	}
	var all []corev1.LoadBalancerIngress
	for _, r := range owned.Ranges() {
		all = append(all, corev1.LoadBalancerIngress{IP: r.First.String()})
	}
	return all
}

func sameIPs(a, b []corev1.LoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.LoadBalancerIngress) bool { return x.IP == y.IP && x.Hostname == y.Hostname })
}
