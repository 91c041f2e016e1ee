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
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/allocator/ledger/clusterapi"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// ipAddressClaims adapts the IPAddressClaims of Cluster API that draw from our pools.
type ipAddressClaims struct {
	annotated[*ipamv1.IPAddressClaim]
}

func (ipAddressClaims) subject() subject {
	return subject{
		kind:  ipamv1.GroupVersion.WithKind("IPAddressClaim"),
		exact: func(allocator.Range) *field.Path { return metal3.AskedPath() },
		count: field.NewPath("spec", "poolRef"),
	}
}

func (ipAddressClaims) decode(raw []byte, stored bool) (*ipamv1.IPAddressClaim, error) {
	c := &ipamv1.IPAddressClaim{}
	if stored {
		return c, decode(raw, c, "ipaddressclaim")
	}
	return c, decode(raw, &struct {
		Metadata *metav1.ObjectMeta         `json:"metadata"`
		Spec     *ipamv1.IPAddressClaimSpec `json:"spec"`
	}{&c.ObjectMeta, &c.Spec}, "ipaddressclaim")
}

func (ipAddressClaims) ours(c *ipamv1.IPAddressClaim) bool {
	_, ours := clusterapi.PoolKeyOf(c)
	return ours
}

func (ipAddressClaims) ignored(c *ipamv1.IPAddressClaim) []string {
	return clusterapi.UnknownPool(c.Spec.PoolRef)
}

func (ipAddressClaims) failed(c *ipamv1.IPAddressClaim) bool {
	return meta.IsStatusConditionFalse(c.Status.Conditions, clusterv1.ReadyCondition)
}

func (ipAddressClaims) follow(p *patch, old, c *ipamv1.IPAddressClaim) {
	was, _ := clusterapi.PoolKeyOf(old)
	is, _ := clusterapi.PoolKeyOf(c)
	followPool(p, old, c, was, is)
}

func (ipAddressClaims) claim(c *ipamv1.IPAddressClaim) ledger.Claim { return clusterapi.ClaimOf(c) }

func (ipAddressClaims) faults(old, c *ipamv1.IPAddressClaim) field.ErrorList {
	return clusterapi.ValidateIPAddressClaim(old, c)
}

func (a ipAddressClaims) wants(ctx context.Context, c *ipamv1.IPAddressClaim, pools client.Reader) ([]ledger.Want, error) {
	pool, _ := clusterapi.PoolKeyOf(c)
	named := c.Annotations[v1alpha1.AnnotationIPAddress] != ""
	var all ipamv1.IPAddressList
	if err := a.cached.List(ctx, &all, client.InNamespace(c.Namespace), client.MatchingFields{metal3.IndexFor: c.Name}); err != nil {
		return nil, readError(err, pool)
	}
	asked, _ := metal3.Asked(c)
	for _, o := range all.Items {
		if held, has := metal3.HeldFor(pool, asked, clusterapi.AddressClaimOf(&o)); has && c.Name != "" {
			return metal3.WantOfStandIn(held), nil
		}
	}
	if err := clusterapi.Wait(c, a.clusters); err != nil && !named {
		return nil, err
	}
	if pool.Kind == butler.KindNetworkPool {
		if p, err := readPool(ctx, pool, pools, &butlerv1.NetworkPool{}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		} else if err := clusterapi.WaitForNetworkPool(p); err != nil && !named {
			return nil, err
		}
		return clusterapi.WantsOfNetworkPool(c), nil
	}
	return a.wantsOfIPPool(ctx, c, pool, pools)
}

func (ipAddressClaims) renamed(ctx context.Context, c *ipamv1.IPAddressClaim, pools client.Reader) error {
	if pool, _ := clusterapi.PoolKeyOf(c); pool.Kind == metal3.KindIPPool {
		return keptForAnother(ctx, c, pool, pools)
	}
	return nil
}

func (ipAddressClaims) pool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return poolOfEither(ctx, k, pools)
}

// poolOfEither reads a pool of one of the two kinds that serve Cluster API.
func poolOfEither(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	if k.Kind == butler.KindNetworkPool {
		return storedPool(ctx, networkPools{}, k, pools)
	}
	return storedPool(ctx, ipPools{}, k, pools)
}

func (ipAddressClaims) complete(p *patch, c *ipamv1.IPAddressClaim, space string) {
	finalizer, _ := clusterapi.Finalizers(c)
	completeWith(p, c, space, finalizer)
}

// clusterAddresses adapts the IPAddresses of Cluster API that are of our pools.
type clusterAddresses struct{ standIn[*ipamv1.IPAddress] }

func (clusterAddresses) subject() subject {
	return subject{kind: ipamv1.GroupVersion.WithKind("IPAddress"), exact: exactAddress}
}

func (clusterAddresses) decode(raw []byte, _ bool) (*ipamv1.IPAddress, error) {
	o := &ipamv1.IPAddress{}
	return o, decode(raw, o, "ipaddresses.ipam.cluster.x-k8s.io")
}

func (clusterAddresses) ours(o *ipamv1.IPAddress) bool { return clusterapi.Ours(o) }

func (clusterAddresses) ignored(o *ipamv1.IPAddress) []string {
	return clusterapi.UnknownPool(o.Spec.PoolRef)
}

func (clusterAddresses) claim(o *ipamv1.IPAddress) ledger.Claim { return clusterapi.AddressClaimOf(o) }

func (clusterAddresses) faults(_, o *ipamv1.IPAddress) field.ErrorList {
	return clusterapi.ValidateIPAddress(o)
}

func (clusterAddresses) wants(_ context.Context, o *ipamv1.IPAddress, _ client.Reader) ([]ledger.Want, error) {
	return metal3.WantOfStandIn(clusterapi.AddressClaimOf(o)), nil
}

func (clusterAddresses) unmet(o *ipamv1.IPAddress, err error) (hint string, refusal error) {
	return unmetBy(clusterapi.AddressClaimOf(o), err)
}

func (clusterAddresses) pool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return poolOfEither(ctx, k, pools)
}
