package metal3

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Only the name of a reference counts, as in Metal3: a reference means an IPPool or
// IPClaim in the object's own namespace. Other values are accepted with a warning,
// because clients and clusterctl write complete references.
const (
	warningNamespace = "%s: %q is ignored, and the %s %q of namespace %s is used: create this object in namespace %s, or name an object of its own namespace"
	warningKind      = "%s: %q is ignored, and the %s %q is used: %s"
	warningGroup     = "%s: %q is ignored, and the %s %q of %s is used: omit the field, or write %s"
)

// FindClaimWarnings warns of ignored fields in a claim's reference to its pool.
func FindClaimWarnings(c *v1alpha1.IPClaim) []string {
	return findReferenceWarnings(field.NewPath("spec", "pool"), c.Spec.Pool, c.Namespace, "IPPool",
		"leave kind out or, for an address of another kind of pool, create an IPAddressClaim of ipam.cluster.x-k8s.io, or a claim of the kind that the pool serves")
}

// FindAddressWarnings warns of ignored fields in an address object's references to its
// pool and its claim.
func FindAddressWarnings(o *v1alpha1.IPAddress) []string {
	const remedy = "leave kind out"
	spec := field.NewPath("spec")
	return append(findReferenceWarnings(spec.Child("pool"), o.Spec.Pool, o.Namespace, "IPPool", remedy),
		findReferenceWarnings(spec.Child("claim"), o.Spec.Claim, o.Namespace, "IPClaim", remedy)...)
}

func findReferenceWarnings(path *field.Path, ref corev1.ObjectReference, namespace, kind, remedy string) (warnings []string) {
	warn := func(format, name, value string, args ...any) {
		warnings = append(warnings, fmt.Sprintf(format, append([]any{path.Child(name), fieldtext.Shorten(value), kind, fieldtext.Shorten(ref.Name)}, args...)...))
	}
	if ref.Namespace != "" && ref.Namespace != namespace {
		warn(warningNamespace, "namespace", ref.Namespace, namespace, fieldtext.Shorten(ref.Namespace))
	}
	if ref.Kind != "" && ref.Kind != kind {
		warn(warningKind, "kind", ref.Kind, remedy)
	}
	if group := v1alpha1.GroupVersion.Group; ref.APIVersion != "" && schema.FromAPIVersionAndKind(ref.APIVersion, "").Group != group {
		warn(warningGroup, "apiVersion", ref.APIVersion, group, v1alpha1.GroupVersion.String())
	}
	return warnings
}
