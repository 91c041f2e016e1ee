package webhooks

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// ipClaims adapts IPClaims.
type ipClaims struct {
	annotatedClaims[*v1alpha1.IPClaim]
}

func (ipClaims) subject() review.Subject {
	return review.Subject{
		Kind:      v1alpha1.GroupVersion.WithKind("IPClaim"),
		ExactPath: func(allocator.Range) *field.Path { return annotated.AddressAnnotationPath() },
		CountPath: field.NewPath("spec", "pool"),
	}
}

func (ipClaims) newObject() *v1alpha1.IPClaim { return &v1alpha1.IPClaim{} }

func (ipClaims) parts(c *v1alpha1.IPClaim) (metadata *metav1.ObjectMeta, spec any) {
	return &c.ObjectMeta, &c.Spec
}

func (ipClaims) isDeniedByStatus(c *v1alpha1.IPClaim) bool { return c.Status.ErrorMessage != nil }

func (ipClaims) findIgnored(c *v1alpha1.IPClaim) []string { return metal3.FindClaimWarnings(c) }

func (ipClaims) toClaim(c *v1alpha1.IPClaim) ledger.Claim { return metal3.ConvertClaim(c) }

func (ipClaims) findFaults(old, c *v1alpha1.IPClaim) field.ErrorList {
	return metal3.ValidateIPClaim(old, c)
}

func (a ipClaims) requests(ctx context.Context, c *v1alpha1.IPClaim, pools client.Reader) ([]ledger.RangeRequest, error) {
	named := c.Annotations[v1alpha1.AnnotationIPAddress] != ""
	var all v1alpha1.IPAddressList
	if err := a.cached.List(ctx, &all, client.InNamespace(c.Namespace), client.MatchingFields{annotated.IndexOwnerClaim: c.Name}); err != nil {
		return nil, readError(err, metal3.PoolKey(c))
	}
	asked, _ := annotated.ParseAddressAnnotation(c)
	for i := range all.Items {
		if owned, has := annotated.FindAddressObject(metal3.PoolKey(c), asked, metal3.ConvertAddress(&all.Items[i])); has && c.Name != "" { // with generateName, no address object can belong to the claim yet
			return metal3.BuildObjectRequest(owned), nil
		}
	}
	if err := metal3.CheckClaimWait(c, a.clusters); err != nil && !named {
		return nil, err
	}
	return a.requestsOfIPPool(ctx, c, metal3.PoolKey(c), pools)
}

func (ipClaims) checkGeneratedName(ctx context.Context, c *v1alpha1.IPClaim, pools client.Reader) error {
	return checkReservedAddress(ctx, c, metal3.PoolKey(c), pools)
}

func (ipClaims) readLedgerPool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return readLedgerPool(ctx, ipPools{}, k, pools)
}

func (ipClaims) completeMetadata(c *v1alpha1.IPClaim, routingDomain string) {
	annotated.CompleteMetadata(c, routingDomain, v1alpha1.FinalizerIPClaim)
}

// ipAddresses adapts IPAddresses.
type ipAddresses struct{}

func (ipAddresses) subject() review.Subject {
	return review.Subject{Kind: v1alpha1.GroupVersion.WithKind("IPAddress"), ExactPath: exactAddressPath}
}

func (ipAddresses) newObject() *v1alpha1.IPAddress { return &v1alpha1.IPAddress{} }

func (ipAddresses) parts(o *v1alpha1.IPAddress) (metadata *metav1.ObjectMeta, spec any) {
	return &o.ObjectMeta, &o.Spec
}

func (ipAddresses) unreadFields() []string { return unreadAddressFields }

func (ipAddresses) toClaim(o *v1alpha1.IPAddress) ledger.Claim { return metal3.ConvertAddress(o) }

func (ipAddresses) findFaults(old, o *v1alpha1.IPAddress) field.ErrorList {
	return metal3.ValidateIPAddress(old, o)
}

func (ipAddresses) findIgnored(o *v1alpha1.IPAddress) []string { return metal3.FindAddressWarnings(o) }

func (ipAddresses) readLedgerPool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return readLedgerPool(ctx, ipPools{}, k, pools)
}
