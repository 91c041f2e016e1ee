package reconcilers

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/allocator/ledger/clusterapi"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch;create;patch;delete
// Where the API server has OwnerReferencesPermissionEnforcement, as OpenShift's does, these are the rights to make an address that its owners wait for.
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools/finalizers,verbs=update
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools/finalizers,verbs=update

// ClusterAPI is the claims of the API ipam.cluster.x-k8s.io. Their pools are those of Metal3 and Butler.
var ClusterAPI API = &api[*ipamv1.IPAddressClaim, *metal3v1.IPPool]{
	claimKind: clusterapi.KindIPAddressClaim, claimName: "ipaddressclaim",
	claims: ipAddressClaims{addressed[*ipamv1.IPAddressClaim, *ipamv1.IPAddress]{
		kind:       clusterAPIAddresses,
		fresh:      func() *ipamv1.IPAddressClaim { return &ipamv1.IPAddressClaim{} },
		claimOf:    clusterapi.ClaimOf,
		named:      func(c *ipamv1.IPAddressClaim) string { return c.Status.AddressRef.Name },
		want:       clusterAPIAddressOf,
		finalizers: clusterapi.Finalizers,
		ours:       []string{metal3v1.FinalizerClusterAPIAddress, butlerv1.FinalizerIPAddress},
		owner:      "IPAddressClaim",
	}},
	others:    []string{metal3.KindIPPool, butler.KindNetworkPool},
	addresses: clusterAPIAddresses,
}

var clusterAPIAddresses = &addressKind{
	kind:      clusterapi.KindIPAddress,
	empty:     func() client.Object { return &ipamv1.IPAddress{} },
	emptyList: func() client.ObjectList { return &ipamv1.IPAddressList{} },
	claim:     func(o client.Object) ledger.Claim { return clusterapi.AddressClaimOf(o.(*ipamv1.IPAddress)) },
}

// ipAddressClaims adapts IPAddressClaims.
type ipAddressClaims struct {
	addressed[*ipamv1.IPAddressClaim, *ipamv1.IPAddress]
}

func (ipAddressClaims) emptyList() client.ObjectList { return &ipamv1.IPAddressClaimList{} }

// answered is true of the claims of other providers: nobody here waits to answer them.
func (ipAddressClaims) answered(c *ipamv1.IPAddressClaim) bool {
	_, ours := clusterapi.PoolKeyOf(c)
	return !ours || metal3.Answered(c)
}

func (ipAddressClaims) flagged(c *ipamv1.IPAddressClaim) bool { return clusterapi.Flagged(c) }

func (a ipAddressClaims) failed(c *ipamv1.IPAddressClaim) bool {
	ready := a.condition(c)
	return ready != nil && (ready.Reason == ipamv1.IPAddressClaimReadyAllocationFailedReason || ready.Reason == ipamv1.IPAddressClaimReadyPoolExhaustedReason)
}

func (ipAddressClaims) condition(c *ipamv1.IPAddressClaim) *metav1.Condition {
	return meta.FindStatusCondition(c.Status.Conditions, clusterv1.ReadyCondition)
}

func (ipAddressClaims) rests(ctx context.Context, d *desk, c *ipamv1.IPAddressClaim, clusters metal3.Clusters) error {
	pool, ours := clusterapi.PoolKeyOf(c)
	if !ours {
		return errForeign
	}
	if err := clusterapi.Wait(c, clusters); err != nil {
		return err
	}
	if pool.Kind == metal3.KindIPPool {
		return d.poolRests(ctx, c, pool, clusters)
	}
	p := &butlerv1.NetworkPool{}
	if d.client.Get(ctx, request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return nil // a missing pool pauses no claim
	}
	return clusterapi.WaitForNetworkPool(p)
}

// errForeign is why the claims of other providers are left alone.
var errForeign = errors.New("its pool is another provider's")

func (a ipAddressClaims) wants(ctx context.Context, d *desk, c *ipamv1.IPAddressClaim) ([]ledger.Want, string, error) {
	pool, _ := clusterapi.PoolKeyOf(c)
	if held, has, err := a.heldFor(ctx, d, c); has || err != nil {
		return held, butlerv1.OriginAdopted, err
	}
	if pool.Kind == butler.KindNetworkPool {
		return clusterapi.WantsOfNetworkPool(c), butlerv1.OriginAuto, nil
	}
	return wantsOfIPPool(ctx, d, pool, c)
}

// allocated makes the claim's IPAddress where there is none, and names it.
func (a ipAddressClaims) allocated(ctx context.Context, d *desk, c *ipamv1.IPAddressClaim) (bool, error) {
	name, err := a.address(ctx, d, c)
	if failure := metal3.Failure(""); errors.As(err, &failure) {
		a.refused(c, nil, err)
		return true, nil
	}
	if err != nil || name == "" {
		return false, err
	}
	has, _ := metal3.Asked(c)
	c.Status.AddressRef = ipamv1.IPAddressReference{Name: name}
	setClaimReady(c, metav1.ConditionTrue, butlerv1.ReasonAllocated, fmt.Sprintf("Address %s allocated from pool %s", has, c.Spec.PoolRef.Name))
	return true, nil
}

// clusterAPIAddressOf is the IPAddress of a claim, owned by the claim and by its pool. clusterctl moves it without a NetworkPool, which stays where it is: the
// manager there names the pool of that cluster.
func clusterAPIAddressOf(ctx context.Context, d *desk, c *ipamv1.IPAddressClaim) (*ipamv1.IPAddress, error) {
	has, _ := metal3.Asked(c)
	key, _ := clusterapi.PoolKeyOf(c)
	_, finalizer := clusterapi.Finalizers(c)
	o := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Labels: c.Labels, Finalizers: []string{finalizer}}}
	pool := poolReadings[key.Kind].empty()
	if err := d.readPool(ctx, key, pool); err != nil {
		return nil, err
	}
	ofClaim := owner(c, ipamv1.GroupVersion.String(), "IPAddressClaim")
	ofClaim.Controller, ofClaim.BlockOwnerDeletion = ptr.To(true), ptr.To(true)
	o.OwnerReferences = []metav1.OwnerReference{ofClaim}
	var ofPool metav1.OwnerReference
	switch p := pool.(type) {
	case *butlerv1.NetworkPool:
		ofPool = owner(p, butlerv1.GroupVersion.String(), "NetworkPool")
		o.Name, o.Spec = clusterapi.AddressOfNetworkPool(p, c, has)
	case *metal3v1.IPPool:
		var err error
		ofPool = owner(p, metal3v1.GroupVersion.String(), "IPPool")
		if o.Name, o.Spec, err = clusterapi.AddressOfIPPool(p, c, has); err != nil {
			return nil, err
		}
	}
	ofPool.Controller, ofPool.BlockOwnerDeletion = ptr.To(false), ptr.To(true)
	o.OwnerReferences = append(o.OwnerReferences, ofPool)
	return o, nil
}

func (ipAddressClaims) clashing(c *ipamv1.IPAddressClaim, message string) {
	setClaimReady(c, metav1.ConditionFalse, clusterapi.ReasonAddressConflict, message)
}

func (ipAddressClaims) refused(c *ipamv1.IPAddressClaim, _ []ledger.Want, err error) {
	if !metal3.Answered(c) {
		c.Status.AddressRef = ipamv1.IPAddressReference{}
	}
	pool, _ := clusterapi.PoolKeyOf(c)
	failure := failureOf(c, pool, err)
	if failure == nil {
		setClaimReady(c, metav1.ConditionFalse, ipamv1.IPAddressClaimReadyPoolNotReadyReason, err.Error())
		return
	}
	setClaimReady(c, metav1.ConditionFalse, clusterapi.ReasonFor(failure), failure.Error())
}

func setClaimReady(c *ipamv1.IPAddressClaim, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: clusterv1.ReadyCondition, Status: status, Reason: reason, Message: message, ObservedGeneration: c.Generation,
	})
}
