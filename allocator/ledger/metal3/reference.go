package metal3

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Of a reference only the name counts, as in Metal3: it means an IPPool, or an IPClaim, of the object's own namespace. A reference that says something else
// is accepted, as clients and clusterctl write whole references, and warned of.
const (
	warningNamespace = "%s: %q does not count, the %s %q of namespace %s is meant: create this object in namespace %s, or name what is in its own"
	warningKind      = "%s: %q does not count, the %s %q is meant: %s"
	warningGroup     = "%s: %q does not count, the %s %q of %s is meant: leave it out, or write %s"
)

// IgnoredInClaim says what of a claim's reference to its pool does not count.
func IgnoredInClaim(c *v1alpha1.IPClaim) []string {
	return ignoredIn(field.NewPath("spec", "pool"), c.Spec.Pool, c.Namespace, "IPPool",
		"leave kind out or, for an address of another kind of pool, create an IPAddressClaim of ipam.cluster.x-k8s.io, or what that kind serves")
}

// IgnoredInAddress says what of an address object's references to its pool and its claim does not count.
func IgnoredInAddress(o *v1alpha1.IPAddress) []string {
	const remedy = "leave kind out"
	spec := field.NewPath("spec")
	return append(ignoredIn(spec.Child("pool"), o.Spec.Pool, o.Namespace, "IPPool", remedy),
		ignoredIn(spec.Child("claim"), o.Spec.Claim, o.Namespace, "IPClaim", remedy)...)
}

func ignoredIn(path *field.Path, ref corev1.ObjectReference, namespace, kind, remedy string) (warnings []string) {
	warn := func(format, name, value string, args ...any) {
		warnings = append(warnings, fmt.Sprintf(format, append([]any{path.Child(name), fields.Short(value), kind, fields.Short(ref.Name)}, args...)...))
	}
	if ref.Namespace != "" && ref.Namespace != namespace {
		warn(warningNamespace, "namespace", ref.Namespace, namespace, fields.Short(ref.Namespace))
	}
	if ref.Kind != "" && ref.Kind != kind {
		warn(warningKind, "kind", ref.Kind, remedy)
	}
	if group := v1alpha1.GroupVersion.Group; ref.APIVersion != "" && schema.FromAPIVersionAndKind(ref.APIVersion, "").Group != group {
		warn(warningGroup, "apiVersion", ref.APIVersion, group, v1alpha1.GroupVersion.String())
	}
	return warnings
}
