package annotated

import (
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// IndexOwnerClaim is an informer index of address objects: name of the claim -> address
// objects
const IndexOwnerClaim = "for"

// ParseAddressAnnotation parses the annotation ipAddress of a claim of either kind: the
// requested address and, after allocation, the allocated address. The address is not
// valid without the annotation; an invalid text returns an error too.
func ParseAddressAnnotation(o metav1.Object) (netip.Addr, *field.Error) {
	text := o.GetAnnotations()[metal3v1.AnnotationIPAddress]
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
	return field.NewPath("metadata", "annotations").Key(metal3v1.AnnotationIPAddress)
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
	annotations[metal3v1.AnnotationIPAddress] = ranges[0].First.String()
	c.SetAnnotations(annotations)
}

// CompleteMetadata adds the missing label of the routing domain, outside the default
// routing domain, and the missing finalizer of a claim of either kind. It reports whether
// any was missing.
func CompleteMetadata(c metav1.Object, routingDomain, finalizer string) bool {
	labelled := routingDomain != "" && object.AddLabels(c, map[string]string{butlerv1.LabelRoutingDomain: routingDomain})
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
		MarkedMoved:     clusterpause.IsMarkedMoved(o),
	}
	if claim.MarkedMoved {
		claim.Clusters = clusterpause.ListClusters(o)
	}
	claim.RoutingDomain, claim.RoutingDomainGranted = object.RoutingDomain(o)
	claim.Token, _ = journal.ParseToken(o.GetAnnotations()[butlerv1.AnnotationGrant])
	return claim
}

// ValidateAddressAnnotation checks the annotation ipAddress of a claim of either kind. An
// address from the allocator is immutable. old may be a nil pointer. A claim marked as
// moved to another cluster is not checked: changes here have no effect.
func ValidateAddressAnnotation[T metav1.Object](old, c T) field.ErrorList {
	asked, err := ParseAddressAnnotation(c)
	switch {
	case clusterpause.IsMarkedMoved(c):
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
