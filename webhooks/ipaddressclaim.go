package webhooks

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// ipAddressClaims adapts the IPAddressClaims of Cluster API that request addresses of an
// IPPool or NetworkPool.
type ipAddressClaims struct {
	annotatedClaims[*ipamv1.IPAddressClaim]
}

func (ipAddressClaims) subject() review.Subject {
	return review.Subject{
		Kind:      ipamv1.GroupVersion.WithKind("IPAddressClaim"),
		ExactPath: func(allocator.Range) *field.Path { return annotated.AddressAnnotationPath() },
		CountPath: field.NewPath("spec", "poolRef"),
	}
}

func (ipAddressClaims) newObject() *ipamv1.IPAddressClaim { return &ipamv1.IPAddressClaim{} }

func (ipAddressClaims) parts(c *ipamv1.IPAddressClaim) (metadata *metav1.ObjectMeta, spec any) {
	return &c.ObjectMeta, &c.Spec
}

func (ipAddressClaims) isManaged(c *ipamv1.IPAddressClaim) bool {
	_, managed := clusterapi.FindPoolKey(c)
	return managed
}

func (ipAddressClaims) findIgnored(c *ipamv1.IPAddressClaim) []string {
	return clusterapi.FindClaimWarnings(c.Spec.PoolRef)
}

func (ipAddressClaims) isDeniedByStatus(c *ipamv1.IPAddressClaim) bool {
	return meta.IsStatusConditionFalse(c.Status.Conditions, clusterv1.ReadyCondition)
}

func (ipAddressClaims) toClaim(c *ipamv1.IPAddressClaim) ledger.Claim {
	return clusterapi.ConvertClaim(c)
}

func (ipAddressClaims) findFaults(old, c *ipamv1.IPAddressClaim) field.ErrorList {
	return clusterapi.ValidateIPAddressClaim(old, c)
}

func (a ipAddressClaims) requests(ctx context.Context, c *ipamv1.IPAddressClaim, pools client.Reader) ([]ledger.RangeRequest, error) {
	pool, _ := clusterapi.FindPoolKey(c)
	named := c.Annotations[v1alpha1.AnnotationIPAddress] != ""
	var all ipamv1.IPAddressList
	if err := a.cached.List(ctx, &all, client.InNamespace(c.Namespace), client.MatchingFields{annotated.IndexOwnerClaim: c.Name}); err != nil {
		return nil, readError(err, pool)
	}
	asked, _ := annotated.ParseAddressAnnotation(c)
	for i := range all.Items {
		if owned, has := annotated.FindAddressObject(pool, asked, clusterapi.ConvertAddress(&all.Items[i])); has && c.Name != "" {
			return metal3.BuildObjectRequest(owned), nil
		}
	}
	if err := clusterapi.CheckWait(c, a.clusters); err != nil && !named {
		return nil, err
	}
	if pool.Resource == butler.ResourceNetworkPool {
		if p, err := readPool(ctx, pool, pools, &butlerv1.NetworkPool{}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		} else if err := clusterapi.CheckNetworkPoolWait(p); err != nil && !named {
			return nil, err
		}
		return clusterapi.BuildNetworkPoolRequest(c), nil
	}
	return a.requestsOfIPPool(ctx, c, pool, pools)
}

func (ipAddressClaims) checkGeneratedName(ctx context.Context, c *ipamv1.IPAddressClaim, pools client.Reader) error {
	if pool, _ := clusterapi.FindPoolKey(c); pool.Resource == metal3.ResourceIPPool {
		return checkReservedAddress(ctx, c, pool, pools)
	}
	return nil
}

func (ipAddressClaims) readLedgerPool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return readClusterAPIPool(ctx, k, pools)
}

// readClusterAPIPool reads a pool of one of the two kinds that serve Cluster API.
func readClusterAPIPool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	if k.Resource == butler.ResourceNetworkPool {
		return readLedgerPool(ctx, networkPools{}, k, pools)
	}
	return readLedgerPool(ctx, ipPools{}, k, pools)
}

func (ipAddressClaims) completeMetadata(c *ipamv1.IPAddressClaim, routingDomain string) {
	finalizer, _ := clusterapi.SelectFinalizers(c)
	annotated.CompleteMetadata(c, routingDomain, finalizer)
}

// clusterAddresses adapts the IPAddresses of Cluster API that record addresses of an
// IPPool or NetworkPool.
type clusterAddresses struct{}

func (clusterAddresses) subject() review.Subject {
	return review.Subject{Kind: ipamv1.GroupVersion.WithKind("IPAddress"), ExactPath: exactAddressPath}
}

func (clusterAddresses) newObject() *ipamv1.IPAddress { return &ipamv1.IPAddress{} }

func (clusterAddresses) parts(o *ipamv1.IPAddress) (metadata *metav1.ObjectMeta, spec any) {
	return &o.ObjectMeta, &o.Spec
}

func (clusterAddresses) unreadFields() []string { return unreadAddressFields }

func (clusterAddresses) isManaged(o *ipamv1.IPAddress) bool { return clusterapi.IsManaged(o) }

func (clusterAddresses) toClaim(o *ipamv1.IPAddress) ledger.Claim {
	return clusterapi.ConvertAddress(o)
}

func (clusterAddresses) findFaults(_, o *ipamv1.IPAddress) field.ErrorList {
	return clusterapi.ValidateIPAddress(o)
}

func (clusterAddresses) findIgnored(o *ipamv1.IPAddress) []string {
	return clusterapi.FindClaimWarnings(o.Spec.PoolRef)
}

func (clusterAddresses) readLedgerPool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return readClusterAPIPool(ctx, k, pools)
}
