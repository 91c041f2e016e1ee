package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims,verbs=get;list;watch;patch
// Replicas of the release before patch the status, and serve on during an update.
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims/status,verbs=patch;update
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipaddresses,verbs=get;list;watch;create;patch;delete

// Metal3 is the API ipam.metal3.io.
var Metal3 API = &api[*v1alpha1.IPClaim, *v1alpha1.IPPool]{
	claimKind: metal3.KindIPClaim, poolKind: metal3.KindIPPool,
	claimName: "ipclaim", poolName: "ippool", wholeStatus: true,
	claims: ipClaims{addressed[*v1alpha1.IPClaim, *v1alpha1.IPAddress]{
		kind:    ipAddresses,
		fresh:   func() *v1alpha1.IPClaim { return &v1alpha1.IPClaim{} },
		claimOf: metal3.ClaimOf,
		named:   func(c *v1alpha1.IPClaim) string { return ptr.Deref(c.Status.Address, corev1.ObjectReference{}).Name },
		want:    addressOf,
		finalizers: func(*v1alpha1.IPClaim) (claim, address string) {
			return v1alpha1.FinalizerIPClaim, v1alpha1.FinalizerIPAddress
		},
		ours:  []string{v1alpha1.FinalizerIPAddress},
		owner: "IPClaim",
	}},
	pools:     ipPools{},
	addresses: ipAddresses,
}

var ipAddresses = &addressKind{
	kind:      metal3.KindIPAddress,
	empty:     func() client.Object { return &v1alpha1.IPAddress{} },
	emptyList: func() client.ObjectList { return &v1alpha1.IPAddressList{} },
	claim:     func(o client.Object) ledger.Claim { return metal3.AddressClaimOf(o.(*v1alpha1.IPAddress)) },
}

// ipClaims adapts IPClaims.
type ipClaims struct {
	addressed[*v1alpha1.IPClaim, *v1alpha1.IPAddress]
}

func (ipClaims) emptyList() client.ObjectList { return &v1alpha1.IPClaimList{} }

func (ipClaims) answered(c *v1alpha1.IPClaim) bool { return metal3.Answered(c) }

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

func (ipClaims) rests(ctx context.Context, d *desk, c *v1alpha1.IPClaim, clusters metal3.Clusters) error {
	if err := metal3.Wait(c, "IPClaim", "", clusters); err != nil {
		return err
	}
	return d.poolRests(ctx, c, metal3.PoolKeyOf(c), clusters)
}

// poolRests says why a claim of an IPPool must be left alone with it. One that is missing keeps none, and none that is being deleted waits for a
// Cluster that is not there.
func (d *desk) poolRests(ctx context.Context, c client.Object, pool ledger.Key, clusters metal3.Clusters) error {
	p := &v1alpha1.IPPool{}
	if d.client.Get(ctx, request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	err := metal3.WaitPool(p, clusters)
	if wait := (*metal3.WaitError)(nil); errors.As(err, &wait) && wait.Missing && c.GetDeletionTimestamp() != nil {
		return nil
	}
	return err
}

// isPaused tells whether a pool is an IPPool that is paused.
func (d *desk) isPaused(ctx context.Context, pool ledger.Key) bool {
	p := &v1alpha1.IPPool{}
	if pool.Kind != metal3.KindIPPool || d.client.Get(ctx, request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return false
	}
	wait := (*metal3.WaitError)(nil)
	return errors.As(metal3.WaitPool(p, d.clusters), &wait) && !wait.Missing
}

func (a ipClaims) wants(ctx context.Context, d *desk, c *v1alpha1.IPClaim) ([]ledger.Want, string, error) {
	if held, has, err := a.heldFor(ctx, d, c); has || err != nil {
		return held, butlerv1.OriginAdopted, err
	}
	wants, origin, err := wantsOfIPPool(ctx, d, metal3.PoolKeyOf(c), c)
	if ignored := metal3.IgnoredInClaim(c); len(ignored) > 0 && errors.As(err, new(*ledger.NoPoolError)) {
		err = fmt.Errorf("%w; %s", err, strings.Join(ignored, "; "))
	}
	return wants, origin, err
}

// wantsOfIPPool is what a claim of either kind asks of an IPPool.
func wantsOfIPPool(ctx context.Context, d *desk, pool ledger.Key, c client.Object) ([]ledger.Want, string, error) {
	p := &v1alpha1.IPPool{}
	if d.client.Get(ctx, request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return nil, "", &ledger.NoPoolError{Pool: pool}
	}
	want, err := metal3.WantOfClaim(p, c)
	return want.Ledger(), butlerv1.OriginAuto, err
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

// addressOf is the IPAddress of a claim.
func addressOf(ctx context.Context, d *desk, c *v1alpha1.IPClaim) (*v1alpha1.IPAddress, error) {
	p := &v1alpha1.IPPool{}
	if err := d.readPool(ctx, metal3.PoolKeyOf(c), p); err != nil {
		return nil, err
	}
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
	}, nil
}

func (ipClaims) clashing(c *v1alpha1.IPClaim, message string) {
	c.Status = v1alpha1.IPClaimStatus{Address: c.Status.Address, ErrorMessage: ptr.To(metal3.Conflict(message))}
}

func (ipClaims) refused(c *v1alpha1.IPClaim, _ []ledger.Want, err error) {
	if !metal3.Answered(c) {
		c.Status.Address = nil
	}
	c.Status.ErrorMessage = nil
	if failure := failureOf(c, metal3.PoolKeyOf(c), err); failure != nil {
		c.Status.ErrorMessage = ptr.To(failure.Error())
	}
}

// failureOf puts the ledger's refusal of a claim into Metal3's words, which do not change while the cause does not. It is nil for one that people need not
// be told of: the pool is yet to come, to be corrected, or on its way out. Where the claim names an address the words say pool, address and rule.
func failureOf(c client.Object, pool ledger.Key, err error) error {
	var (
		failure    metal3.Failure
		unoffered  *metal3.UnofferedError
		held       *ledger.HeldError
		outside    *allocator.OutsideError
		blocked    *allocator.BlockedError
		noPool     *ledger.NoPoolError
		deleting   *ledger.PoolDeletingError
		faulty     *ledger.FaultyPoolError
		named, bad = metal3.Asked(c)
	)
	why := func(format string, args ...any) error {
		if bad != nil || !named.IsValid() {
			return metal3.FailureHeld
		}
		return fmt.Errorf("%w: pool %s: %s", metal3.FailureHeld, pool, fmt.Sprintf(format, args...))
	}
	switch {
	case errors.As(err, &unoffered), errors.As(err, &outside):
		return why("%s is outside the pool: correct or remove annotation %s", named, v1alpha1.AnnotationIPAddress)
	case errors.As(err, &failure):
		return failure
	case errors.As(err, &noPool), errors.As(err, &deleting), errors.As(err, &faulty):
		return nil
	case errors.Is(err, allocator.ErrExhausted):
		return metal3.FailureExhausted
	case errors.As(err, &held):
		return why("%s", held.SeenFrom(c.GetNamespace()))
	case errors.As(err, &blocked) && pool.Kind == metal3.KindIPPool: // kept for another claim, in Metal3's words
		return metal3.FailureHeld
	case errors.As(err, &blocked):
		return why("%s: correct or remove annotation %s", blocked.Text(), v1alpha1.AnnotationIPAddress)
	}
	return err
}
