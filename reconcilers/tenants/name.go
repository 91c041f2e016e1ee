package tenants

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// InitialName is the name for a tenant's first block of a type: <namespace>-<name>-lb or -nodes. Two tenants can come to the same one
// ("a-b" with "c", "a" with "b-c"), and so can a tenant and an earlier one of the same name, whose block has not been given back yet.
// taken tells which names somebody else has; the later tenant's then has a hash of its UID before the suffix, which nobody can know before
// the tenant exists. A name is no proof of anything: whose a block is says BlocksOf.
func InitialName(t Tenant, kind v1alpha1.IPAllocationType, taken func(name string) bool) string {
	suffix := "-nodes"
	if kind == v1alpha1.TypeLoadBalancer {
		suffix = "-lb"
	}
	whole := t.Namespace + "-" + t.Name
	if plain := shortened(whole, suffix); !taken(plain) {
		return plain
	}
	return shortened(whole, "-"+hash(t.Namespace+"/"+t.Name+"/"+t.UID)+suffix)
}

// GrowthName is the name for a block that is added: <namespace>-<name>-lb-<N> with the lowest N from 1 that is not taken, by this
// tenant or another.
func GrowthName(t Tenant, taken func(name string) bool) string {
	for n := 1; ; n++ {
		if name := shortened(t.Namespace+"-"+t.Name, "-lb-"+strconv.Itoa(n)); !taken(name) {
			return name
		}
	}
}

// shortened is name and suffix, where they are together as long as a name may be; else as much of name as there is room for, a dash, a
// hash of the whole name, and suffix.
func shortened(name, suffix string) string {
	if room := validation.DNS1123SubdomainMaxLength - len(suffix); len(name) > room {
		sum := "-" + hash(name)
		name = strings.TrimRight(name[:room-len(sum)], "-.") + sum
	}
	return name + suffix
}

// hash is 10 hexadecimal digits.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:5])
}

var growthSuffix = regexp.MustCompile(`-[0-9]+$`)

// roleOf is what an allocation of type loadbalancer is to its tenant. Those of earlier releases have no label: by their names, then.
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

// isPinned tells a range that was asked for from one that was found. An allocation that nobody answered yet asks for what it has.
func isPinned(a *v1alpha1.IPAllocation) bool {
	origin, answered := a.Annotations[v1alpha1.AnnotationOrigin]
	return origin == v1alpha1.OriginPinned || !answered && a.Spec.PinnedRange != nil
}
