package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipaddresses,verbs=get;list;watch;create;patch;delete

// Metal3 is the API ipam.metal3.io.
var Metal3 API = &api[*v1alpha1.IPClaim, *v1alpha1.IPPool]{
	claimKind: metal3.KindIPClaim, poolKind: metal3.KindIPPool,
	claimName: "ipclaim", poolName: "ippool",
	claims: ipClaims{}, pools: ipPools{},
	addresses: &addressKind{
		kind:      metal3.KindIPAddress,
		empty:     func() client.Object { return &v1alpha1.IPAddress{} },
		emptyList: func() client.ObjectList { return &v1alpha1.IPAddressList{} },
		claim:     func(o client.Object) ledger.Claim { return metal3.AddressClaimOf(o.(*v1alpha1.IPAddress)) },
	},
}

// ipClaims adapts IPClaims: the answer is the annotation ipAddress, and then an IPAddress.
type ipClaims struct{}

func (ipClaims) empty() *v1alpha1.IPClaim { return &v1alpha1.IPClaim{} }

func (ipClaims) emptyList() client.ObjectList { return &v1alpha1.IPClaimList{} }

func (ipClaims) claim(c *v1alpha1.IPClaim) ledger.Claim { return metal3.ClaimOf(c) }

func (ipClaims) unreadable(c *v1alpha1.IPClaim) error { return unreadable(c) }

// unreadable says why the annotation ipAddress of a claim cannot be read.
func unreadable(c client.Object) error {
	if _, err := metal3.Asked(c); err != nil {
		return metal3.FailureUnreadable(c.GetAnnotations()[v1alpha1.AnnotationIPAddress])
	}
	return nil
}

func (ipClaims) held(c *v1alpha1.IPClaim) bool { return len(metal3.ClaimOf(c).Ranges) > 0 }

func (ipClaims) answered(c *v1alpha1.IPClaim) bool { return metal3.Answered(c) }

func (ipClaims) vouched(c *v1alpha1.IPClaim) bool { return c.Status.Address != nil }

func (ipClaims) flagged(c *v1alpha1.IPClaim) bool { return metal3.Flagged(c) }

func (ipClaims) failed(c *v1alpha1.IPClaim) bool { return c.Status.ErrorMessage != nil }

// condition puts the status into the words of other claims.
func (ipClaims) condition(c *v1alpha1.IPClaim) *metav1.Condition {
	switch {
	case c.Status.ErrorMessage != nil:
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: *c.Status.ErrorMessage, Message: *c.Status.ErrorMessage}
	case c.Status.Address != nil:
		a, _ := metal3.Asked(c)
		return &metav1.Condition{Status: metav1.ConditionTrue, Message: fmt.Sprintf("Address %s allocated from pool %s", a, c.Spec.Pool.Name)}
	}
	return nil
}

func (ipClaims) rests(ctx context.Context, d *desk, c *v1alpha1.IPClaim, clusters metal3.Clusters) bool {
	p := &v1alpha1.IPPool{}
	if err := d.client.Get(ctx, request(metal3.PoolKeyOf(c)).NamespacedName, p, client.UnsafeDisableDeepCopy); err == nil && metal3.WaitPool(p, clusters) != nil {
		return true
	}
	return metal3.Wait(c, "IPClaim", "", clusters) != nil
}

func (ipClaims) addresses(ctx context.Context, d *desk, c types.NamespacedName) ([]*v1alpha1.IPAddress, error) {
	return addressesFor[*v1alpha1.IPAddress](ctx, d, &v1alpha1.IPAddressList{}, c)
}

// found is the address of a claim that an IPAddress says it has, of the pool that it asks.
func (a ipClaims) found(ctx context.Context, d *desk, c *v1alpha1.IPClaim) (*v1alpha1.IPAddress, error) {
	all, err := a.addresses(ctx, d, client.ObjectKeyFromObject(c))
	for _, o := range all {
		if o.Spec.Pool.Name == c.Spec.Pool.Name {
			return o, nil
		}
	}
	return nil, err
}

func (a ipClaims) wants(ctx context.Context, d *desk, c *v1alpha1.IPClaim) ([]ledger.Want, string, error) {
	o, err := a.found(ctx, d, c)
	if err != nil {
		return nil, "", err
	}
	if o != nil {
		return []ledger.Want{{Exact: metal3.AddressClaimOf(o).Ranges[0]}}, butlerv1.OriginAdopted, nil
	}
	return wantsOfIPPool(ctx, d, metal3.PoolKeyOf(c), c)
}

// wantsOfIPPool is what a claim of either kind asks of an IPPool.
func wantsOfIPPool(ctx context.Context, d *desk, pool ledger.Key, c client.Object) ([]ledger.Want, string, error) {
	p := &v1alpha1.IPPool{}
	if d.client.Get(ctx, request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return nil, "", &ledger.NoPoolError{Pool: pool}
	}
	want, err := metal3.WantOf(p, c.GetName(), c.GetAnnotations()[v1alpha1.AnnotationIPAddress])
	return want.Ledger(), butlerv1.OriginAuto, err
}

func (ipClaims) fill(c *v1alpha1.IPClaim, ranges []allocator.Range) { fillAnnotation(c, ranges) }

// fillAnnotation writes the answer of a claim that has none.
func fillAnnotation(c client.Object, ranges []allocator.Range) {
	annotations := c.GetAnnotations()
	if annotations[v1alpha1.AnnotationIPAddress] != "" || len(ranges) == 0 {
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationIPAddress] = ranges[0].First.String()
	c.SetAnnotations(annotations)
}

func (ipClaims) complete(c *v1alpha1.IPClaim, space string) bool {
	return completeWith(c, space, v1alpha1.FinalizerIPClaim)
}

// completeWith gives a claim the label of its routing domain and its finalizer, and lets it be moved.
func completeWith(c client.Object, space, finalizer string) bool {
	lacked := unblock(c)
	labels := c.GetLabels()
	if _, has := labels[butlerv1.LabelRoutingDomain]; !has && space != "" {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[butlerv1.LabelRoutingDomain] = space
		c.SetLabels(labels)
		lacked = true
	}
	return controllerutil.AddFinalizer(c, finalizer) || lacked
}

// allocated makes the claim's IPAddress where there is none, and names it.
func (a ipClaims) allocated(ctx context.Context, d *desk, c *v1alpha1.IPClaim) (bool, error) {
	name, err := a.address(ctx, d, c)
	if err != nil || name == "" {
		return false, err
	}
	c.Status = v1alpha1.IPClaimStatus{Address: &corev1.ObjectReference{Name: name, Namespace: c.Namespace}}
	return true, nil
}

// address is the name of the claim's IPAddress, which is made where there is none.
func (a ipClaims) address(ctx context.Context, d *desk, c *v1alpha1.IPClaim) (string, error) {
	has, _ := metal3.Asked(c)
	ours := func(o *v1alpha1.IPAddress) bool {
		held := metal3.AddressClaimOf(o)
		return held.For == metal3.IPClaimKey(c.Namespace, c.Name) && len(held.Ranges) == 1 && held.Ranges[0].First == has
	}
	all, err := a.addresses(ctx, d, client.ObjectKeyFromObject(c))
	if err != nil {
		return "", err
	}
	for _, o := range all {
		if ours(o) {
			d.made.forget(client.ObjectKeyFromObject(c))
			return o.Name, nil
		}
	}
	p := &v1alpha1.IPPool{}
	if err := d.readPool(ctx, metal3.PoolKeyOf(c), p); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return makeAddress(ctx, d, c, a.vouched(c), addressOf(p, c), ours)
}

// addressOf is the IPAddress of a claim.
func addressOf(p *v1alpha1.IPPool, c *v1alpha1.IPClaim) *v1alpha1.IPAddress {
	has, _ := metal3.Asked(c)
	settings := metal3.SettingsFor(p, has)
	group := v1alpha1.GroupVersion.String()
	return &v1alpha1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: metal3.AddressName(p, has), Namespace: c.Namespace, Labels: c.Labels, Finalizers: []string{v1alpha1.FinalizerIPAddress},
			OwnerReferences: []metav1.OwnerReference{owner(p, group, "IPPool"), owner(c, group, "IPClaim")},
		},
		Spec: v1alpha1.IPAddressSpec{
			Claim:   corev1.ObjectReference{Name: c.Name, Namespace: c.Namespace},
			Pool:    corev1.ObjectReference{Name: p.Name, Namespace: p.Namespace},
			Address: v1alpha1.IP(has.String()), Prefix: settings.Prefix, Gateway: settings.Gateway, DNSServers: settings.DNSServers,
		},
	}
}

func (ipClaims) clashing(c *v1alpha1.IPClaim, message string) {
	c.Status = v1alpha1.IPClaimStatus{Address: c.Status.Address, ErrorMessage: ptr.To(metal3.Conflict(message))}
}

func (ipClaims) refused(c *v1alpha1.IPClaim, _ []ledger.Want, err error) {
	c.Status.Address, c.Status.ErrorMessage = nil, nil
	if failure := failureOf(err); failure != nil {
		c.Status.ErrorMessage = ptr.To(failure.Error())
	}
}

// failureOf puts the ledger's refusal into Metal3's words, which do not change while the cause does not. It is nil for one that people need not be
// told of: the pool is yet to come, or on its way out.
func failureOf(err error) error {
	var (
		failure  metal3.Failure
		held     *ledger.HeldError
		outside  *allocator.OutsideError
		blocked  *allocator.BlockedError
		noPool   *ledger.NoPoolError
		deleting *ledger.PoolDeletingError
	)
	switch {
	case errors.As(err, &failure):
		return failure
	case errors.As(err, &noPool), errors.As(err, &deleting):
		return nil
	case errors.Is(err, allocator.ErrExhausted), errors.As(err, &outside):
		return metal3.FailureExhausted
	case errors.As(err, &held), errors.As(err, &blocked):
		return metal3.FailureHeld
	}
	return err
}

func (a ipClaims) release(ctx context.Context, d *desk, c *v1alpha1.IPClaim) (time.Duration, error) {
	all, err := a.addresses(ctx, d, client.ObjectKeyFromObject(c))
	if err != nil {
		return 0, err
	}
	return withdraw(ctx, d, c, a.vouched(c), all, v1alpha1.FinalizerIPClaim, v1alpha1.FinalizerIPAddress)
}

func (a ipClaims) gone(ctx context.Context, d *desk, name types.NamespacedName) (time.Duration, error) {
	all, err := a.addresses(ctx, d, name)
	if err != nil {
		return 0, err
	}
	return orphans(ctx, d, all, v1alpha1.FinalizerIPAddress)
}

// annotationClaimTouched is when a claim was written to so that nothing older can land any more.
const annotationClaimTouched = "butler.butlerlabs.dev/touched"

func (ipClaims) touch(ctx context.Context, c client.Client, live client.Reader, k ledger.Key, uid string) (*v1alpha1.IPClaim, bool, error) {
	return touchWith(ctx, c, live, k, uid, &v1alpha1.IPClaim{}, annotationClaimTouched)
}
