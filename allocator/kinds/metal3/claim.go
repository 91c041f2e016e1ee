package metal3

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Values of ledger.Key.Resource.
const (
	ResourceIPClaim   = "ipclaims.ipam.metal3.io"
	ResourceIPAddress = "ipaddresses.ipam.metal3.io"
)

// ipClaimKey returns the key of an IPClaim. name is empty until generateName is expanded.
func ipClaimKey(namespace, name string) ledger.Key {
	return ledger.Key{Resource: ResourceIPClaim, Namespace: namespace, Name: name}
}

// ipAddressKey returns the key of an IPAddress.
func ipAddressKey(namespace, name string) ledger.Key {
	return ledger.Key{Resource: ResourceIPAddress, Namespace: namespace, Name: name}
}

// PoolKey returns the key of a claim's pool, which lies in the namespace of the claim.
// Other fields of the reference are ignored.
func PoolKey(c *v1alpha1.IPClaim) ledger.Key { return IPPoolKey(c.Namespace, c.Spec.Pool.Name) }

// CheckPoolWait returns a *clusterpause.WaitError while the claims of a pool must not be
// reconciled.
func CheckPoolWait(p *v1alpha1.IPPool, clusters clusterpause.Clusters) error {
	return clusterpause.Check(p, "IPPool", ptr.Deref(p.Spec.ClusterName, ""), clusters)
}

// CheckClaimWait returns a *clusterpause.WaitError while a claim must not be reconciled.
// The Cluster that pauses a claim is that of its pool.
func CheckClaimWait(c *v1alpha1.IPClaim, clusters clusterpause.Clusters) error {
	return clusterpause.Check(c, "IPClaim", "", clusters)
}

// ConvertClaim converts a stored claim for the ledger.
func ConvertClaim(c *v1alpha1.IPClaim) ledger.Claim {
	a, _ := annotated.ParseAddressAnnotation(c)
	claim := annotated.ConvertObject(c, ipClaimKey(c.Namespace, c.Name), PoolKey(c), a)
	claim.AllocatedEarlier = c.Status.Address != nil
	claim.Ready = claim.AllocatedEarlier && c.Status.ErrorMessage == nil
	claim.Flagged = IsFlagged(c)
	return claim
}

// ConflictPrefix begins status.errorMessage of an IPClaim in an address conflict, and
// marks the IPClaim as flagged. ConflictPrefix is part of the stored format: the text
// after ConflictPrefix may change between releases, ConflictPrefix may not. There is no
// structured field for the mark:
//
//	another field, or a condition   the status of Metal3 has only address and errorMessage, and the CRD of Metal3 prunes other fields
//	an annotation                   needs a write of its own, not atomic with the message, and clusterctl move copies it to a cluster without the conflict
//	the ledger's answer             names the conflict, not whether the flag is stored; the other owner becomes Ready only after the flag
const ConflictPrefix = "Address conflict: "

// IsFlagged reports whether a claim is marked as the loser of an address conflict.
func IsFlagged(c *v1alpha1.IPClaim) bool {
	return c.Status.ErrorMessage != nil && strings.HasPrefix(*c.Status.ErrorMessage, ConflictPrefix)
}

// FormatConflict formats an address conflict for status.errorMessage.
func FormatConflict(message string) string { return ConflictPrefix + message }

// ConvertAddress converts a stored IPAddress for the ledger: the IPAddress owns its
// address on behalf of its claim. An IPAddress has no status: readers use the address at
// once, so Ready is always true, and a conflict cannot be shown on the object.
func ConvertAddress(o *v1alpha1.IPAddress) ledger.Claim {
	a, _ := fieldtext.At(nil, string(o.Spec.Address)).ParseAddress()
	claim := annotated.ConvertObject(o, ipAddressKey(o.Namespace, o.Name), IPPoolKey(o.Namespace, o.Spec.Pool.Name), a)
	claim.OwnerClaim = ipClaimKey(o.Namespace, o.Spec.Claim.Name)
	claim.Ready, claim.Flagged = true, true
	return claim
}

// ValidateIPClaim checks every rule that needs no other object; old is nil for a create.
func ValidateIPClaim(old, c *v1alpha1.IPClaim) field.ErrorList {
	pool := field.NewPath("spec", "pool")
	errs := annotated.ValidateAddressAnnotation(old, c)
	if c.Spec.Pool.Name == "" {
		errs = append(errs, field.Required(pool.Child("name"), "name the IPPool, in the same namespace, that the address is to come from"))
	}
	if old != nil && changesReference(old.Spec.Pool, c.Spec.Pool) {
		errs = append(errs, field.Forbidden(pool, "name, namespace and kind of the pool cannot be changed: create another IPClaim in the other pool and delete this one"))
	}
	return errs
}

// changesReference reports whether an update changes the target of a reference. Other
// fields of the reference do not count.
func changesReference(was, is corev1.ObjectReference) bool {
	return was.Name != is.Name || was.Namespace != is.Namespace || was.Kind != is.Kind
}

// ValidateIPAddress checks the rules that need no other object; old is nil for a create.
// An update is checked for immutable fields only, because installed CRDs may lack these
// rules.
func ValidateIPAddress(old, o *v1alpha1.IPAddress) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if old != nil {
		if old.Spec.Address != o.Spec.Address {
			errs = append(errs, field.Forbidden(spec.Child("address"), "address cannot be changed: create another IPAddress and delete this one"))
		}
		if changesReference(old.Spec.Pool, o.Spec.Pool) {
			errs = append(errs, field.Forbidden(spec.Child("pool"), "name, namespace and kind of the pool cannot be changed: create another IPAddress and delete this one"))
		}
		if changesReference(old.Spec.Claim, o.Spec.Claim) {
			errs = append(errs, field.Forbidden(spec.Child("claim"), "name, namespace and kind of the claim cannot be changed: create another IPAddress and delete this one"))
		}
		return errs
	}
	if o.Spec.Pool.Name == "" {
		errs = append(errs, field.Required(spec.Child("pool", "name"), "name the IPPool that the address belongs to"))
	}
	if o.Spec.Claim.Name == "" {
		errs = append(errs, field.Required(spec.Child("claim", "name"), "name the claim that owns the address or, to reserve the address, a name that no claim can have, such as _reserved"))
	}
	if _, err := fieldtext.At(spec.Child("address"), string(o.Spec.Address)).ParseAddress(); err != nil {
		errs = append(errs, err)
	}
	return errs
}
