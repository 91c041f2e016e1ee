package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// InitialName returns the name of a tenant's initial block of a kind:
// <namespace>-<name>-lb or -nodes. isTaken reports names of other tenants' blocks:
//
//	namespace a-b, name c and namespace a, name b-c   have the same name
//	an earlier tenant of the same name                may have a block that is not released yet
//
// For a taken name, a hash of the UID precedes the suffix. The UID is unknown before the
// tenant exists, so the name cannot be taken in advance. A name proves nothing: BlocksOf
// decides which tenant owns a block.
func InitialName(t Tenant, kind v1alpha1.IPAllocationType, isTaken func(name string) bool) string {
	suffix := "-nodes"
	if kind == v1alpha1.TypeLoadBalancer {
		suffix = "-lb"
	}
	prefix := t.Namespace + "-" + t.Name
	if name := shortenName(prefix, suffix); !isTaken(name) {
		return name
	}
	return shortenName(prefix, "-"+shortHash(t.Namespace+"/"+t.Name+"/"+t.UID)+suffix)
}

// GrowthName returns the name of a tenant's next growth block: <namespace>-<name>-lb-<N>
// with the lowest free N from 1.
func GrowthName(t Tenant, isTaken func(name string) bool) string {
	for n := 1; ; n++ {
		if name := shortenName(t.Namespace+"-"+t.Name, "-lb-"+strconv.Itoa(n)); !isTaken(name) {
			return name
		}
	}
}

// AdoptedName returns the name of the block for an adopted range:
// <namespace>-<name>-lb-<first address with dashes>. For a taken name, see InitialName.
func AdoptedName(t Tenant, r allocator.Range, isTaken func(name string) bool) string {
	suffix := "-lb-" + strings.NewReplacer(".", "-", ":", "-").Replace(r.First.StringExpanded())
	if name := shortenName(t.Namespace+"-"+t.Name, suffix); !isTaken(name) {
		return name
	}
	return shortenName(t.Namespace+"-"+t.Name, "-"+shortHash(t.Namespace+"/"+t.Name+"/"+t.UID)+suffix)
}

// shortenName returns name and suffix. If both together are longer than an object's name
// may be, the end of name is replaced by a dash and a hash of the whole name.
func shortenName(name, suffix string) string {
	if room := validation.DNS1123SubdomainMaxLength - len(suffix); len(name) > room {
		sum := "-" + shortHash(name)
		name = strings.TrimRight(name[:room-len(sum)], "-.") + sum
	}
	return name + suffix
}

// shortHash returns 10 hexadecimal digits.
func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:5])
}

var growthSuffix = regexp.MustCompile(`-[0-9]+$`)

// roleOf returns the role of an allocation of type loadbalancer: initial or growth.
// Allocations of earlier releases have no label; their names decide.
func roleOf(a *v1alpha1.IPAllocation) string {
	role := a.Labels[v1alpha1.LabelAllocationRole]
	switch {
	case role != "":
		return role
	case isPinned(a), a.Name == fmt.Sprintf("%s-%s-lb", a.Spec.TenantClusterRef.Namespace, a.Spec.TenantClusterRef.Name), !growthSuffix.MatchString(a.Name):
		return v1alpha1.RoleInitial
	}
	return v1alpha1.RoleGrowth
}

// isPinned reports whether the author of an allocation requested its range. Without
// annotation origin the allocator has not answered yet, and a range in the spec is from
// the author.
func isPinned(a *v1alpha1.IPAllocation) bool {
	origin, answered := a.Annotations[v1alpha1.AnnotationOrigin]
	return origin == v1alpha1.OriginPinned || !answered && a.Spec.PinnedRange != nil
}
