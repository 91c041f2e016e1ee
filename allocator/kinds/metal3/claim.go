package metal3

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Values of ledger.Key.Resource.
const (
	ResourceIPClaim   = "ipclaims.ipam.metal3.io"
	ResourceIPAddress = "ipaddresses.ipam.metal3.io"
)

// IndexOwnerClaim is an informer index of address objects: name of the claim -> address
// objects
const IndexOwnerClaim = "for"

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

// ParseAddressAnnotation parses the annotation ipAddress of a claim of either kind: the
// requested address and, after allocation, the allocated address. The address is not
// valid without the annotation; an invalid text returns an error too.
func ParseAddressAnnotation(o metav1.Object) (netip.Addr, *field.Error) {
	text := o.GetAnnotations()[v1alpha1.AnnotationIPAddress]
	if text == "" {
		return netip.Addr{}, nil
	}
	a, err := fieldtext.At(AddressAnnotationPath(), text).ParseAddress()
	if err != nil {
		return netip.Addr{}, err
	}
	return a, nil
}

// AddressAnnotationPath returns the path of the annotation ipAddress.
func AddressAnnotationPath() *field.Path {
	return field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationIPAddress)
}

// HasAllocatedAddress reports whether a claim of either kind names an earlier allocation:
// the annotations ipAddress and origin. In a stored claim both come from the allocator;
// in a create they may come from a backup or from any user.
func HasAllocatedAddress(o metav1.Object) bool {
	a, _ := ParseAddressAnnotation(o)
	return a.IsValid() && o.GetAnnotations()[butlerv1.AnnotationOrigin] != ""
}

// FillAddress writes a granted address into the annotation ipAddress of a claim of either
// kind. An annotation with the same address stays as its author wrote it.
func FillAddress(c metav1.Object, ranges []allocator.Range) {
	if len(ranges) == 0 {
		return
	}
	if named, err := ParseAddressAnnotation(c); err == nil && named == ranges[0].First {
		return
	}
	annotations := c.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationIPAddress] = ranges[0].First.String()
	c.SetAnnotations(annotations)
}

// CompleteMetadata adds the missing label of the routing domain, outside the default
// space, and the missing finalizer of a claim of either kind. It reports whether any was
// missing.
func CompleteMetadata(c metav1.Object, space, finalizer string) bool {
	labelled := space != "" && object.AddLabels(c, map[string]string{butlerv1.LabelRoutingDomain: space})
	return object.AddFinalizer(c, finalizer) || labelled
}

// toRanges returns an address as ranges of the ledger; nil for an address that is not
// valid.
func toRanges(a netip.Addr) []allocator.Range {
	if !a.IsValid() {
		return nil
	}
	return []allocator.Range{{First: a, Last: a}}
}

// ConvertObject converts the common part of claims and address objects for the ledger.
// The caller adds the part that depends on status.
func ConvertObject(o metav1.Object, key, pool ledger.Key, a netip.Addr) ledger.Claim {
	claim := ledger.Claim{
		Key:             key,
		UID:             string(o.GetUID()),
		ResourceVersion: object.ResourceVersion(o),
		Created:         o.GetCreationTimestamp().Time,
		Pool:            pool,
		Ranges:          toRanges(a),
		Deleting:        o.GetDeletionTimestamp() != nil,
		MarkedMoved:     IsMarkedMoved(o),
	}
	if claim.MarkedMoved {
		claim.Clusters = listClusters(o)
	}
	claim.Space, claim.SpaceGranted = object.RoutingDomain(o)
	claim.Token, _ = journal.ParseToken(o.GetAnnotations()[butlerv1.AnnotationGrant])
	return claim
}

// ConvertClaim converts a stored claim for the ledger.
func ConvertClaim(c *v1alpha1.IPClaim) ledger.Claim {
	a, _ := ParseAddressAnnotation(c)
	claim := ConvertObject(c, ipClaimKey(c.Namespace, c.Name), PoolKey(c), a)
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
	claim := ConvertObject(o, ipAddressKey(o.Namespace, o.Name), IPPoolKey(o.Namespace, o.Spec.Pool.Name), a)
	claim.OwnerClaim = ipClaimKey(o.Namespace, o.Spec.Claim.Name)
	claim.Ready, claim.Flagged = true, true
	return claim
}

// ValidateIPClaim checks every rule that needs no other object; old is nil for a create.
func ValidateIPClaim(old, c *v1alpha1.IPClaim) field.ErrorList {
	pool := field.NewPath("spec", "pool")
	errs := ValidateAddressAnnotation(old, c)
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

// ValidateAddressAnnotation checks the annotation ipAddress of a claim of either kind. An
// address from the allocator is immutable. old may be a nil pointer. A claim marked as
// moved to another cluster is not checked: changes here have no effect.
func ValidateAddressAnnotation[T metav1.Object](old, c T) field.ErrorList {
	asked, err := ParseAddressAnnotation(c)
	switch {
	case IsMarkedMoved(c):
	case err != nil:
		return field.ErrorList{field.Invalid(AddressAnnotationPath(), err.BadValue, NewUnreadableFailure(fmt.Sprint(err.BadValue)).Error())}
	case isStored(old) && HasAllocatedAddress(old):
		if has, _ := ParseAddressAnnotation(old); asked.IsValid() && has != asked {
			return field.ErrorList{field.Invalid(AddressAnnotationPath(), asked.String(), "is the address that the claim has, and cannot be changed: leave it out, or write "+
				has.String()+"; for another address create another claim")}
		}
	}
	return nil
}

func isStored[T metav1.Object](old T) bool {
	var none T
	return any(old) != any(none)
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
