package reconcilers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools;ipallocations,verbs=get;list;watch

func (f *Feed) addButler(ctx context.Context, mgr manager.Manager) error {
	claim := func(o client.Object) ledger.Claim { return butler.ClaimOf(o.(*v1alpha1.IPAllocation)) }
	err := f.add(ctx, mgr, butler.KindIPAllocation, &v1alpha1.IPAllocation{}, &kind{
		newList: func() client.ObjectList { return &v1alpha1.IPAllocationList{} },
		claim:   claim,
		observe: func(o client.Object) { f.ledger.Observe(claim(o)) },
		forget: func(o client.Object, version uint64) {
			f.ledger.Forget(butler.KindIPAllocation, string(o.GetUID()), version)
		},
		replace: func(all []client.Object) {
			claims := make([]ledger.Claim, len(all))
			for i, o := range all {
				claims[i] = claim(o)
			}
			f.ledger.ReplaceClaims(butler.KindIPAllocation, claims)
		},
		touch: func(ctx context.Context, k ledger.Key, uid string) (ledger.Claim, bool, error) {
			return touchIPAllocation(ctx, mgr.GetClient(), mgr.GetAPIReader(), k, uid)
		},
	})
	if err != nil {
		return err
	}
	pool := func(o client.Object) ledger.Pool {
		p, _ := butler.PoolOf(o.(*v1alpha1.NetworkPool)) // one that breaks a rule offers nothing; its status says why
		return p
	}
	remove := func(k ledger.Key, version uint64) { f.ledger.RemovePool(k, version) }
	return f.add(ctx, mgr, butler.KindNetworkPool, &v1alpha1.NetworkPool{}, &kind{
		newList: func() client.ObjectList { return &v1alpha1.NetworkPoolList{} },
		observe: func(o client.Object) { f.ledger.SetPool(pool(o)) },
		forget: func(o client.Object, version uint64) {
			remove(butler.NetworkPoolKey(o.GetNamespace(), o.GetName()), version)
		},
		replace: func(all []client.Object) {
			for _, o := range all {
				f.ledger.SetPool(pool(o))
			}
		},
	})
}

// touchIPAllocation makes sure that no write of a range to this allocation, decided on an older version of it, can land any more.
// Such a write was decided on an allocation without a range, or writes the range that it has already: one that has a range is left
// alone.
func touchIPAllocation(ctx context.Context, c client.Client, live client.Reader, k ledger.Key, uid string) (ledger.Claim, bool, error) {
	var a v1alpha1.IPAllocation
	there := false
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		there = false
		if err := live.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, &a); err != nil {
			return err
		}
		_, source, _ := butler.RangeOf(&a)
		if there = string(a.UID) == uid; !there || source != butler.Nowhere {
			return nil
		}
		// The time makes it a change whatever was there before.
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAllocationFailed, ObservedGeneration: a.Generation,
			Message: "the range could not be written and is given anew (" + time.Now().UTC().Format(time.RFC3339Nano) + ")",
		})
		return c.Status().Update(ctx, &a)
	})
	if err != nil {
		return ledger.Claim{}, false, client.IgnoreNotFound(err)
	}
	return butler.ClaimOf(&a), there, nil
}
