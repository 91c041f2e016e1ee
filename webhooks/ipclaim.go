package webhooks

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// ipClaims adapts IPClaims.
type ipClaims struct{ annotated[*v1alpha1.IPClaim] }

func (ipClaims) subject() subject {
	return subject{
		kind:  v1alpha1.GroupVersion.WithKind("IPClaim"),
		exact: func(allocator.Range) *field.Path { return metal3.AskedPath() },
		count: field.NewPath("spec", "pool"),
	}
}

func (ipClaims) decode(raw []byte, stored bool) (*v1alpha1.IPClaim, error) {
	c := &v1alpha1.IPClaim{}
	if stored {
		return c, decode(raw, c, "ipclaim")
	}
	return c, decode(raw, &struct {
		Metadata *metav1.ObjectMeta    `json:"metadata"`
		Spec     *v1alpha1.IPClaimSpec `json:"spec"`
	}{&c.ObjectMeta, &c.Spec}, "ipclaim")
}

func (ipClaims) ours(*v1alpha1.IPClaim) bool { return true }

// failed is true of a claim that waits for its pool too, whose status says nothing.
func (ipClaims) failed(c *v1alpha1.IPClaim) bool {
	return c.Status.ErrorMessage != nil || c.Status.Address == nil && !metal3.Answered(c)
}

func (ipClaims) follow(p *patch, old, c *v1alpha1.IPClaim) {
	followPool(p, old, c, metal3.PoolKeyOf(old), metal3.PoolKeyOf(c))
}

func (ipClaims) ignored(c *v1alpha1.IPClaim) []string { return metal3.IgnoredInClaim(c) }

func (ipClaims) claim(c *v1alpha1.IPClaim) ledger.Claim { return metal3.ClaimOf(c) }

func (ipClaims) faults(old, c *v1alpha1.IPClaim) field.ErrorList {
	return metal3.ValidateIPClaim(old, c)
}

func (a ipClaims) wants(ctx context.Context, c *v1alpha1.IPClaim, pools client.Reader) ([]ledger.Want, error) {
	named := c.Annotations[v1alpha1.AnnotationIPAddress] != ""
	var all v1alpha1.IPAddressList
	if err := a.cached.List(ctx, &all, client.InNamespace(c.Namespace), client.MatchingFields{metal3.IndexFor: c.Name}); err != nil {
		return nil, readError(err, metal3.PoolKeyOf(c))
	}
	asked, _ := metal3.Asked(c)
	for _, o := range all.Items {
		if held, has := metal3.HeldFor(metal3.PoolKeyOf(c), asked, metal3.AddressClaimOf(&o)); has && c.Name != "" {
			return metal3.WantOfStandIn(held), nil
		}
	}
	if err := metal3.Wait(c, "IPClaim", "", a.clusters); err != nil && !named {
		return nil, err
	}
	return a.wantsOfIPPool(ctx, c, metal3.PoolKeyOf(c), pools)
}

func (ipClaims) renamed(ctx context.Context, c *v1alpha1.IPClaim, pools client.Reader) error {
	return keptForAnother(ctx, c, metal3.PoolKeyOf(c), pools)
}

func (ipClaims) pool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return storedPool(ctx, ipPools{}, k, pools)
}

func (ipClaims) complete(p *patch, c *v1alpha1.IPClaim, space string) {
	completeWith(p, c, space, v1alpha1.FinalizerIPClaim)
}

// ipAddresses adapts IPAddresses.
type ipAddresses struct{ standIn[*v1alpha1.IPAddress] }

func (ipAddresses) subject() subject {
	return subject{kind: v1alpha1.GroupVersion.WithKind("IPAddress"), exact: exactAddress}
}

func (ipAddresses) decode(raw []byte, _ bool) (*v1alpha1.IPAddress, error) {
	o := &v1alpha1.IPAddress{}
	return o, decode(raw, o, "ipaddresses.ipam.metal3.io")
}

func (ipAddresses) ignored(o *v1alpha1.IPAddress) []string { return metal3.IgnoredInAddress(o) }

func (ipAddresses) claim(o *v1alpha1.IPAddress) ledger.Claim { return metal3.AddressClaimOf(o) }

func (ipAddresses) faults(old, o *v1alpha1.IPAddress) field.ErrorList {
	return metal3.ValidateIPAddress(old, o)
}

func (ipAddresses) wants(_ context.Context, o *v1alpha1.IPAddress, _ client.Reader) ([]ledger.Want, error) {
	return metal3.WantOfStandIn(metal3.AddressClaimOf(o)), nil
}

func (ipAddresses) unmet(o *v1alpha1.IPAddress, err error) (hint string, refusal error) {
	return unmetBy(metal3.AddressClaimOf(o), err)
}

func (ipAddresses) pool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return storedPool(ctx, ipPools{}, k, pools)
}
