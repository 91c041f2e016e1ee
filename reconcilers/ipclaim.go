package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/addressobjects"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/pools"
)

// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims,verbs=get;list;watch;patch
// Replicas of the previous release patch the status, and still serve during a rolling
// update.
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims/status,verbs=patch;update
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipaddresses,verbs=get;list;watch;create;patch;delete

// Metal3 is the API ipam.metal3.io.
var Metal3 API = &apiAdapter[*v1alpha1.IPClaim, *v1alpha1.IPPool]{
	claimResource: metal3.ResourceIPClaim, poolResource: metal3.ResourceIPPool,
	claimName: "ipclaim", poolName: "ippool", wholeStatus: true, workers: addressWorkers,
	newClaims: newIPClaims, pools: pools.IPPools, addresses: ipAddresses,
}

func newIPClaims() claims.Adapter[*v1alpha1.IPClaim] {
	return ipClaims{notOffered: &reported{}, Claims: addressobjects.New(addressobjects.Config[*v1alpha1.IPClaim, *v1alpha1.IPAddress]{
		Kind:          ipAddresses,
		NewClaim:      func() *v1alpha1.IPClaim { return &v1alpha1.IPClaim{} },
		ConvertClaim:  metal3.ConvertClaim,
		StatusAddress: func(c *v1alpha1.IPClaim) string { return ptr.Deref(c.Status.Address, corev1.ObjectReference{}).Name },
		Build:         buildIPAddress,
		Finalizers: func(*v1alpha1.IPClaim) (claim, address string) {
			return v1alpha1.FinalizerIPClaim, v1alpha1.FinalizerIPAddress
		},
		ManagedFinalizers: []string{v1alpha1.FinalizerIPAddress},
		OwnerKind:         "IPClaim",
	})}
}

var ipAddresses = &addressobjects.Kind{
	Resource: metal3.ResourceIPAddress,
	Empty:    func() client.Object { return &v1alpha1.IPAddress{} },
	NewList:  func() client.ObjectList { return &v1alpha1.IPAddressList{} },
	Convert:  func(o client.Object) ledger.Claim { return metal3.ConvertAddress(o.(*v1alpha1.IPAddress)) },
}

// ipClaims adapts IPClaims.
type ipClaims struct {
	addressobjects.Claims[*v1alpha1.IPClaim, *v1alpha1.IPAddress]
	notOffered *reported
}

// reported has the claims whose last event says that their pool does not offer their
// addresses: the status of an IPClaim has no conditions. A new leader repeats the events.
// It is safe for concurrent use.
type reported struct{ texts sync.Map } // claim -> UID and text of the event

func (r *reported) forget(claim types.NamespacedName) bool {
	_, was := r.texts.LoadAndDelete(claim)
	return was
}

var (
	_ claims.Pausable[*v1alpha1.IPClaim]   = ipClaims{}
	_ claims.Releaser[*v1alpha1.IPClaim]   = ipClaims{}
	_ claims.Dependents[*v1alpha1.IPClaim] = ipClaims{}
)

func (ipClaims) NewList() client.ObjectList { return &v1alpha1.IPClaimList{} }

func (ipClaims) AllocatedByUs(c *v1alpha1.IPClaim) bool { return annotated.HasAllocatedAddress(c) }

func (ipClaims) IsFlagged(c *v1alpha1.IPClaim) bool { return metal3.IsFlagged(c) }

func (ipClaims) HasFailed(c *v1alpha1.IPClaim) bool { return c.Status.ErrorMessage != nil }

// OwnershipCondition returns the status as a condition.
func (ipClaims) OwnershipCondition(c *v1alpha1.IPClaim) *metav1.Condition {
	switch {
	case c.Status.ErrorMessage != nil:
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: *c.Status.ErrorMessage, Message: *c.Status.ErrorMessage}
	case c.Status.Address != nil:
		a, _ := annotated.ParseAddressAnnotation(c)
		return &metav1.Condition{Status: metav1.ConditionTrue, Message: fmt.Sprintf("Address %s allocated from pool %s", a, c.Spec.Pool.Name)}
	}
	return nil
}

func (ipClaims) CheckManaged(ctx context.Context, d *claims.Deps, c *v1alpha1.IPClaim, clusters clusterpause.Clusters) error {
	if err := metal3.CheckClaimWait(c, clusters); err != nil {
		return err
	}
	return checkPoolManaged(ctx, d, c, metal3.PoolKey(c), clusters)
}

// checkPoolManaged returns why a claim must not be managed because of its pool. A missing
// pool does not stop a claim, and a claim that is being deleted does not wait for a
// missing Cluster.
func checkPoolManaged(ctx context.Context, d *claims.Deps, c client.Object, pool ledger.Key, clusters clusterpause.Clusters) error {
	p := d.NewPool(pool.Resource)
	if d.Client.Get(ctx, feed.Request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	err := kinds.ForResource(pool.Resource).CheckWait(p, clusters)
	if wait := (*clusterpause.WaitError)(nil); errors.As(err, &wait) && wait.Missing && c.GetDeletionTimestamp() != nil {
		return nil
	}
	return err
}

func (a ipClaims) Requests(ctx context.Context, d *claims.Deps, c *v1alpha1.IPClaim) ([]ledger.RangeRequest, string, error) {
	if requests, has, err := a.RequestsOfAddressObjects(ctx, d, c); has || err != nil {
		return requests, butlerv1.OriginAdopted, err
	}
	requests, origin, err := requestsOfIPPool(ctx, d, metal3.PoolKey(c), c)
	if ignored := metal3.FindClaimWarnings(c); len(ignored) > 0 && errors.As(err, new(*ledger.NoPoolError)) {
		err = fmt.Errorf("%w; %s", err, strings.Join(ignored, "; "))
	}
	return requests, origin, err
}

// requestsOfIPPool returns the request of a claim of either API to an IPPool.
func requestsOfIPPool(ctx context.Context, d *claims.Deps, pool ledger.Key, c client.Object) ([]ledger.RangeRequest, string, error) {
	p := &v1alpha1.IPPool{}
	if d.Client.Get(ctx, feed.Request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return nil, "", &ledger.NoPoolError{Pool: pool}
	}
	request, err := metal3.BuildClaimRequest(p, c)
	return request.ToLedger(), butlerv1.OriginAuto, err
}

// SetAllocated creates the claim's IPAddress if it is missing, and names it in the
// status.
func (a ipClaims) SetAllocated(ctx context.Context, d *claims.Deps, c *v1alpha1.IPClaim) error {
	name, err := a.EnsureAddress(ctx, d, c)
	if err != nil {
		return err
	}
	c.Status = v1alpha1.IPClaimStatus{Address: &corev1.ObjectReference{Name: name, Namespace: c.Namespace}}
	return nil
}

// buildIPAddress returns the IPAddress of a claim.
func buildIPAddress(ctx context.Context, d *claims.Deps, c *v1alpha1.IPClaim) (*v1alpha1.IPAddress, error) {
	p := &v1alpha1.IPPool{}
	if err := addressobjects.ReadPool(ctx, d, metal3.PoolKey(c), p); err != nil {
		return nil, err
	}
	has, _ := annotated.ParseAddressAnnotation(c)
	settings := metal3.FindSettings(p, has)
	group := v1alpha1.GroupVersion.String()
	return &v1alpha1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: metal3.AddressName(p, has), Namespace: c.Namespace, Labels: c.Labels, Finalizers: []string{v1alpha1.FinalizerIPAddress},
			OwnerReferences: []metav1.OwnerReference{addressobjects.OwnerReference(p, group, "IPPool"), addressobjects.OwnerReference(c, group, "IPClaim")},
		},
		Spec: v1alpha1.IPAddressSpec{
			Claim:   corev1.ObjectReference{Name: c.Name, Namespace: c.Namespace},
			Pool:    corev1.ObjectReference{Name: p.Name, Namespace: p.Namespace},
			Address: v1alpha1.IP(has.String()), Prefix: settings.Prefix, Gateway: settings.Gateway, DNSServers: settings.DNSServers,
		},
	}, nil
}

func (a ipClaims) SetNotOffered(c *v1alpha1.IPClaim, e *ledger.NotOfferedError) bool {
	name := client.ObjectKeyFromObject(c)
	if e == nil {
		return a.notOffered.forget(name)
	}
	text := string(c.UID) + e.Error()
	before, _ := a.notOffered.texts.Swap(name, text)
	return before != text
}

// Forget implements claims.Dependents.
func (a ipClaims) Forget(d *claims.Deps, claim types.NamespacedName) {
	a.notOffered.forget(claim)
	a.Claims.Forget(d, claim)
}

func (ipClaims) SetConflict(c *v1alpha1.IPClaim, message string) {
	c.Status = v1alpha1.IPClaimStatus{Address: c.Status.Address, ErrorMessage: ptr.To(metal3.FormatConflict(message))}
}

func (ipClaims) SetDenied(c *v1alpha1.IPClaim, _ []ledger.RangeRequest, err error) {
	if !annotated.HasAllocatedAddress(c) {
		c.Status.Address = nil
	}
	c.Status.ErrorMessage = nil
	if failure := failureOf(c, metal3.PoolKey(c), err); failure != nil {
		c.Status.ErrorMessage = ptr.To(failure.Error())
	}
}

// failureOf describes the ledger's denial of a claim in the words of Metal3. The text
// changes only when the cause does. It returns nil for a denial that users need not see:
// the pool is missing, has a fault, or is being deleted. If the claim names an address,
// the text has pool, address and rule.
func failureOf(c client.Object, pool ledger.Key, err error) error {
	var (
		failure    annotated.Failure
		unoffered  *metal3.UnofferedError
		owned      *ledger.OwnedError
		outside    *allocator.OutsideError
		blocked    *allocator.BlockedError
		noPool     *ledger.NoPoolError
		deleting   *ledger.PoolDeletingError
		faulty     *ledger.FaultyPoolError
		named, bad = annotated.ParseAddressAnnotation(c)
	)
	why := func(format string, args ...any) error {
		if bad != nil || !named.IsValid() {
			return annotated.FailureUnavailable
		}
		return fmt.Errorf("%w: pool %s: %s", annotated.FailureUnavailable, pool, fmt.Sprintf(format, args...))
	}
	switch {
	case errors.As(err, &unoffered), errors.As(err, &outside):
		return why("%s is outside the pool: correct or remove annotation %s", named, v1alpha1.AnnotationIPAddress)
	case errors.As(err, &failure):
		return failure
	case errors.As(err, &noPool), errors.As(err, &deleting), errors.As(err, &faulty):
		return nil
	case errors.Is(err, allocator.ErrExhausted):
		return annotated.FailureExhausted
	case errors.As(err, &owned):
		return why("%s", owned.SeenFrom(c.GetNamespace()))
	case errors.As(err, &blocked) && pool.Resource == metal3.ResourceIPPool: // reserved for another claim; the text is Metal3's
		return annotated.FailureUnavailable
	case errors.As(err, &blocked):
		return why("%s: correct or remove annotation %s", blocked.Text(), v1alpha1.AnnotationIPAddress)
	}
	return err
}
