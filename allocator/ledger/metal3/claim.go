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
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Values of ledger.Key.Kind.
const (
	KindIPClaim   = "ipclaims.ipam.metal3.io"
	KindIPAddress = "ipaddresses.ipam.metal3.io"
)

// IndexFor is an index, in the informers, of the objects that hold an address for a claim: name of the claim ->
const IndexFor = "for"

// ipClaimKey names an IPClaim. name is empty where generateName has not been expanded yet.
func ipClaimKey(namespace, name string) ledger.Key {
	return ledger.Key{Kind: KindIPClaim, Namespace: namespace, Name: name}
}

// ipAddressKey names an IPAddress.
func ipAddressKey(namespace, name string) ledger.Key {
	return ledger.Key{Kind: KindIPAddress, Namespace: namespace, Name: name}
}

// PoolKeyOf names the pool that a claim draws from: it lies in the claim's own namespace, whatever else the reference says.
func PoolKeyOf(c *v1alpha1.IPClaim) ledger.Key { return IPPoolKey(c.Namespace, c.Spec.Pool.Name) }

// Asked is the address that a claim of either kind names in its annotation ipAddress: what it asks for, and from the answer on has. It is not
// valid where there is none, or none that can be read; the error says so then.
func Asked(o metav1.Object) (netip.Addr, *field.Error) {
	text := o.GetAnnotations()[v1alpha1.AnnotationIPAddress]
	if text == "" {
		return netip.Addr{}, nil
	}
	a, err := fields.At(AskedPath(), text).Address()
	if err != nil {
		return netip.Addr{}, err
	}
	return a, nil
}

// AskedPath is where a claim names an address.
func AskedPath() *field.Path {
	return field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationIPAddress)
}

// Answered tells whether a claim of either kind carries an answer of the allocator.
func Answered(o metav1.Object) bool {
	a, _ := Asked(o)
	return a.IsValid() && o.GetAnnotations()[butlerv1.AnnotationOrigin] != ""
}

// ranges is one address in the ledger's words, none where it is not valid.
func ranges(a netip.Addr) []allocator.Range {
	if !a.IsValid() {
		return nil
	}
	return []allocator.Range{{First: a, Last: a}}
}

// Held is what the ledger needs to know of a claim of either kind, or of an IPAddress, but for its kind, its pool, and what its status says.
func Held(o metav1.Object, key, pool ledger.Key, a netip.Addr) ledger.Claim {
	claim := ledger.Claim{
		Key:             key,
		UID:             string(o.GetUID()),
		ResourceVersion: fields.ResourceVersion(o),
		Created:         o.GetCreationTimestamp().Time,
		Pool:            pool,
		Space:           o.GetLabels()[butlerv1.LabelRoutingDomain],
		Ranges:          ranges(a),
		Deleting:        o.GetDeletionTimestamp() != nil,
		Away:            Away(o),
	}
	if claim.Away {
		claim.Clusters = clustersOf(o)
	}
	claim.Token, _ = journal.ParseToken(o.GetAnnotations()[butlerv1.AnnotationGrant])
	return claim
}

// ClaimOf is what the ledger needs to know of a stored claim.
func ClaimOf(c *v1alpha1.IPClaim) ledger.Claim {
	a, _ := Asked(c)
	claim := Held(c, ipClaimKey(c.Namespace, c.Name), PoolKeyOf(c), a)
	claim.Vouched = c.Status.Address != nil
	claim.Ready = claim.Vouched && c.Status.ErrorMessage == nil
	claim.Flagged = Flagged(c)
	return claim
}

// conflict is what status.errorMessage of a claim begins with some of whose addresses others have.
const conflict = "Address conflict: "

// Flagged tells whether a claim is marked as one whose address another has.
func Flagged(c *v1alpha1.IPClaim) bool {
	return c.Status.ErrorMessage != nil && strings.HasPrefix(*c.Status.ErrorMessage, conflict)
}

// Conflict words a clash for status.errorMessage.
func Conflict(message string) string { return conflict + message }

// AddressClaimOf is what the ledger needs to know of a stored IPAddress: it holds its address for the claim that it names. It has no status:
// whoever reads it uses the address, and it cannot be marked as one that should not be used.
func AddressClaimOf(o *v1alpha1.IPAddress) ledger.Claim {
	a, _ := fields.At(nil, string(o.Spec.Address)).Address()
	claim := Held(o, ipAddressKey(o.Namespace, o.Name), IPPoolKey(o.Namespace, o.Spec.Pool.Name), a)
	claim.For = ipClaimKey(o.Namespace, o.Spec.Claim.Name)
	claim.Ready, claim.Flagged = true, true
	return claim
}

// ValidateIPClaim holds a claim to every rule that needs no other object; old is nil for a create.
func ValidateIPClaim(old, c *v1alpha1.IPClaim) field.ErrorList {
	pool := field.NewPath("spec", "pool")
	errs := ValidateAsked(old, c)
	if c.Spec.Pool.Name == "" {
		errs = append(errs, field.Required(pool.Child("name"), "name the IPPool, in the same namespace, that the address is to come from"))
	}
	if old != nil && namesAnother(old.Spec.Pool, c.Spec.Pool) {
		errs = append(errs, field.Forbidden(pool, "name, namespace and kind of the pool cannot be changed: create another IPClaim in the other pool and delete this one"))
	}
	return errs
}

// namesAnother tells whether a reference that is updated leads elsewhere. What else it says does not count.
func namesAnother(was, is corev1.ObjectReference) bool {
	return was.Name != is.Name || was.Namespace != is.Namespace || was.Kind != is.Kind
}

// ValidateAsked checks the annotation ipAddress of a claim of either kind. Once it is the allocator's answer it stays. old may be nil, of any
// type. A claim on its way to another cluster is let pass: what is done to it here does not count.
func ValidateAsked[T metav1.Object](old, c T) field.ErrorList {
	asked, err := Asked(c)
	switch {
	case Away(c):
	case err != nil:
		return field.ErrorList{field.Invalid(AskedPath(), err.BadValue, FailureUnreadable(fmt.Sprint(err.BadValue)).Error())}
	case isStored(old) && Answered(old):
		if has, _ := Asked(old); asked.IsValid() && has != asked {
			return field.ErrorList{field.Invalid(AskedPath(), asked.String(), "is the address that the claim has, and cannot be changed: leave it out, or write "+
				has.String()+"; for another address create another claim")}
		}
	}
	return nil
}

func isStored[T metav1.Object](old T) bool {
	var none T
	return any(old) != any(none)
}

// ValidateIPAddress holds an address to the rules that need no other object; old is nil for a create. Of an update only what may not change counts: not
// every CRD has rules for that.
func ValidateIPAddress(old, o *v1alpha1.IPAddress) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if old != nil {
		if old.Spec.Address != o.Spec.Address {
			errs = append(errs, field.Forbidden(spec.Child("address"), "address cannot be changed: create another IPAddress and delete this one"))
		}
		if namesAnother(old.Spec.Pool, o.Spec.Pool) {
			errs = append(errs, field.Forbidden(spec.Child("pool"), "name, namespace and kind of the pool cannot be changed: create another IPAddress and delete this one"))
		}
		if namesAnother(old.Spec.Claim, o.Spec.Claim) {
			errs = append(errs, field.Forbidden(spec.Child("claim"), "name, namespace and kind of the claim cannot be changed: create another IPAddress and delete this one"))
		}
		return errs
	}
	if o.Spec.Pool.Name == "" {
		errs = append(errs, field.Required(spec.Child("pool", "name"), "name the IPPool that the address belongs to"))
	}
	if o.Spec.Claim.Name == "" {
		errs = append(errs, field.Required(spec.Child("claim", "name"), "name the claim that the address is for or, to keep it from everybody, what no claim can be called, such as _nobody"))
	}
	if _, err := fields.At(spec.Child("address"), string(o.Spec.Address)).Address(); err != nil {
		errs = append(errs, err)
	}
	return errs
}
