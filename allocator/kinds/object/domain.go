package object

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// RoutingDomain returns the routing domain that a claim or address object records for its
// addresses. If the object records none, granted is false, and the routing domain is that
// of its label.
func RoutingDomain(o metav1.Object) (domain string, granted bool) {
	switch recorded := o.GetAnnotations()[v1alpha1.AnnotationGrantedDomain]; recorded {
	case "":
		return o.GetLabels()[v1alpha1.LabelRoutingDomain], false
	case v1alpha1.DefaultDomain:
		return "", true
	default:
		return recorded, true
	}
}

// FormatDomain formats a routing domain for the annotation that records it.
func FormatDomain(domain string) string {
	if domain == "" {
		return v1alpha1.DefaultDomain
	}
	return domain
}

// RecordDomain records the routing domain of the addresses of an object, and reports
// whether the object recorded another one or none.
func RecordDomain(o metav1.Object, domain string) bool {
	annotations := o.GetAnnotations()
	if annotations[v1alpha1.AnnotationGrantedDomain] == FormatDomain(domain) {
		return false
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationGrantedDomain] = FormatDomain(domain)
	o.SetAnnotations(annotations)
	return true
}
