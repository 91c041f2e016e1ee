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

	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/addressobjects"
	"butlerlabs.dev/ipam/reconcilers/claims"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch;create;patch;delete
// With OwnerReferencesPermissionEnforcement, as on OpenShift, the API server requires
// these rights for owner references with blockOwnerDeletion.
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools/finalizers,verbs=update
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools/finalizers,verbs=update

// ClusterAPI is the API ipam.cluster.x-k8s.io. Its pools are those of Metal3 and Butler.
var ClusterAPI API = &apiAdapter[*ipamv1.IPAddressClaim, *metal3v1.IPPool]{
	claimResource: clusterapi.ResourceIPAddressClaim, claimName: "ipaddressclaim", workers: addressWorkers,
	newClaims: newIPAddressClaims, addresses: clusterAPIAddresses,
}

func newIPAddressClaims() claims.Adapter[*ipamv1.IPAddressClaim] {
	return ipAddressClaims{addressobjects.New(addressobjects.Config[*ipamv1.IPAddressClaim, *ipamv1.IPAddress]{
		Kind:              clusterAPIAddresses,
		NewClaim:          func() *ipamv1.IPAddressClaim { return &ipamv1.IPAddressClaim{} },
		ConvertClaim:      clusterapi.ConvertClaim,
		StatusAddress:     func(c *ipamv1.IPAddressClaim) string { return c.Status.AddressRef.Name },
		Build:             buildClusterAPIAddress,
		Finalizers:        clusterapi.SelectFinalizers,
		ManagedFinalizers: []string{metal3v1.FinalizerClusterAPIAddress, butlerv1.FinalizerIPAddress},
		OwnerKind:         "IPAddressClaim",
	})}
}

var clusterAPIAddresses = &addressobjects.Kind{
	Resource: clusterapi.ResourceIPAddress,
	Empty:    func() client.Object { return &ipamv1.IPAddress{} },
	NewList:  func() client.ObjectList { return &ipamv1.IPAddressList{} },
	Convert:  func(o client.Object) ledger.Claim { return clusterapi.ConvertAddress(o.(*ipamv1.IPAddress)) },
}

// ipAddressClaims adapts IPAddressClaims.
type ipAddressClaims struct {
	addressobjects.Claims[*ipamv1.IPAddressClaim, *ipamv1.IPAddress]
}

var (
	_ claims.Pausable[*ipamv1.IPAddressClaim]   = ipAddressClaims{}
	_ claims.Releaser[*ipamv1.IPAddressClaim]   = ipAddressClaims{}
	_ claims.Dependents[*ipamv1.IPAddressClaim] = ipAddressClaims{}
)

func (ipAddressClaims) NewList() client.ObjectList { return &ipamv1.IPAddressClaimList{} }

// AllocatedByUs is true for claims of other providers: this manager does not serve them.
func (ipAddressClaims) AllocatedByUs(c *ipamv1.IPAddressClaim) bool {
	_, ours := clusterapi.FindPoolKey(c)
	return !ours || annotated.HasAllocatedAddress(c)
}

func (ipAddressClaims) IsFlagged(c *ipamv1.IPAddressClaim) bool { return clusterapi.IsFlagged(c) }

func (a ipAddressClaims) HasFailed(c *ipamv1.IPAddressClaim) bool {
	ready := a.OwnershipCondition(c)
	return ready != nil && (ready.Reason == ipamv1.IPAddressClaimReadyAllocationFailedReason || ready.Reason == ipamv1.IPAddressClaimReadyPoolExhaustedReason)
}

func (ipAddressClaims) OwnershipCondition(c *ipamv1.IPAddressClaim) *metav1.Condition {
	return meta.FindStatusCondition(c.Status.Conditions, clusterv1.ReadyCondition)
}

func (ipAddressClaims) CheckManaged(ctx context.Context, d *claims.Deps, c *ipamv1.IPAddressClaim, clusters clusterpause.Clusters) error {
	pool, ours := clusterapi.FindPoolKey(c)
	if !ours {
		return claims.ErrForeign
	}
	if err := clusterapi.CheckWait(c, clusters); err != nil {
		return err
	}
	return checkPoolManaged(ctx, d, c, pool, clusters)
}

func (a ipAddressClaims) Requests(ctx context.Context, d *claims.Deps, c *ipamv1.IPAddressClaim) ([]ledger.RangeRequest, string, error) {
	pool, _ := clusterapi.FindPoolKey(c)
	if requests, has, err := a.RequestsOfAddressObjects(ctx, d, c); has || err != nil {
		return requests, butlerv1.OriginAdopted, err
	}
	if pool.Resource == butler.ResourceNetworkPool {
		return clusterapi.BuildNetworkPoolRequest(c), butlerv1.OriginAuto, nil
	}
	return requestsOfIPPool(ctx, d, pool, c)
}

// SetAllocated creates the claim's IPAddress if it is missing, and names it in the
// status.
func (a ipAddressClaims) SetAllocated(ctx context.Context, d *claims.Deps, c *ipamv1.IPAddressClaim) error {
	name, err := a.EnsureAddress(ctx, d, c)
	if failure := annotated.Failure(""); errors.As(err, &failure) {
		a.SetDenied(c, nil, err)
		return nil
	}
	if err != nil {
		return err
	}
	has, _ := annotated.ParseAddressAnnotation(c)
	c.Status.AddressRef = ipamv1.IPAddressReference{Name: name}
	setClaimReady(c, metav1.ConditionTrue, butlerv1.ReasonAllocated, fmt.Sprintf("Address %s allocated from pool %s", has, c.Spec.PoolRef.Name))
	return nil
}

// buildClusterAPIAddress returns the IPAddress of a claim, owned by the claim and its
// pool. clusterctl moves the IPAddress but no NetworkPool: the manager of the target
// cluster adds the NetworkPool of the target cluster as owner.
func buildClusterAPIAddress(ctx context.Context, d *claims.Deps, c *ipamv1.IPAddressClaim) (*ipamv1.IPAddress, error) {
	has, _ := annotated.ParseAddressAnnotation(c)
	key, _ := clusterapi.FindPoolKey(c)
	_, finalizer := clusterapi.SelectFinalizers(c)
	o := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Labels: c.Labels, Finalizers: []string{finalizer}}}
	pool := d.NewPool(key.Resource)
	if err := addressobjects.ReadPool(ctx, d, key, pool); err != nil {
		return nil, err
	}
	ofClaim := addressobjects.OwnerReference(c, ipamv1.GroupVersion.String(), "IPAddressClaim")
	ofClaim.Controller, ofClaim.BlockOwnerDeletion = ptr.To(true), ptr.To(true)
	o.OwnerReferences = []metav1.OwnerReference{ofClaim}
	var err error
	if o.Name, o.Spec, err = clusterapi.BuildAddress(pool, c, has); err != nil {
		return nil, err
	}
	kind := kinds.ForResource(key.Resource).GroupVersionKind()
	ofPool := addressobjects.OwnerReference(pool, kind.GroupVersion().String(), kind.Kind)
	ofPool.Controller, ofPool.BlockOwnerDeletion = ptr.To(false), ptr.To(true)
	o.OwnerReferences = append(o.OwnerReferences, ofPool)
	return o, nil
}

func (ipAddressClaims) SetNotOffered(c *ipamv1.IPAddressClaim, e *ledger.NotOfferedError) bool {
	return setNotOffered(&c.Status.Conditions, c.Generation, e)
}

func (ipAddressClaims) SetConflict(c *ipamv1.IPAddressClaim, message string) {
	setClaimReady(c, metav1.ConditionFalse, clusterapi.ReasonAddressConflict, message)
}

func (ipAddressClaims) SetDenied(c *ipamv1.IPAddressClaim, _ []ledger.RangeRequest, err error) {
	if !annotated.HasAllocatedAddress(c) {
		c.Status.AddressRef = ipamv1.IPAddressReference{}
	}
	pool, _ := clusterapi.FindPoolKey(c)
	failure := failureOf(c, pool, err)
	if failure == nil {
		setClaimReady(c, metav1.ConditionFalse, ipamv1.IPAddressClaimReadyPoolNotReadyReason, err.Error())
		return
	}
	setClaimReady(c, metav1.ConditionFalse, clusterapi.SelectReadyReason(failure), failure.Error())
}

func setClaimReady(c *ipamv1.IPAddressClaim, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: clusterv1.ReadyCondition, Status: status, Reason: reason, Message: message, ObservedGeneration: c.Generation,
	})
}
