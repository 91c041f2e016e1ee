package tenancy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
	"butlerlabs.dev/ipam/reconcilers/work"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=tenantclusters,verbs=patch
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=tenantclusters/status,verbs=patch

// Field managers of what is written to TenantClusters.
const (
	ownerNetwork = "butler-ipam"
	ownerGrowth  = "butler-ipam-growth"
)

// network gives each TenantCluster the blocks to begin with, and its session what that needs to know.
type network struct {
	*desk
	sessions *sessions
	short    *names // tenants that wait for a pool, or for room in one, to begin with
	holding  reasons
	failed   work.Since[types.UID] // blocks that are to be replaced
}

func (r *network) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c := &v1alpha1.TenantCluster{}
	err := r.Get(ctx, req.NamespacedName, c)
	if err == nil && c.DeletionTimestamp != nil {
		_ = r.releaseIn(c) // counts on every replica: the next leader goes on
	}
	if !r.Serving() {
		return reconcile.Result{}, nil
	}
	if err != nil {
		r.deleted.Forget(func(t identity) bool { return t.name == req.NamespacedName })
		r.sessions.stop(req.NamespacedName)
		r.short.put(req.NamespacedName, false)
		r.holding.news(req.NamespacedName, "")
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if c.DeletionTimestamp != nil {
		r.short.put(req.NamespacedName, false)
		return r.release(ctx, c)
	}
	t, fault := tenants.TenantOf(c)
	stored, err := r.allocationsOf(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	policy, err := r.policyOf(ctx, c)
	none := metav1.Condition{Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNetworkNotReady}
	if apierrors.IsNotFound(err) {
		none.Message = err.Error() + ": create it, or name another in spec.providerConfigRef"
		return reconcile.Result{}, r.leave(ctx, c, tenants.BlocksOf(t, stored), none)
	}
	if others := (*tenants.OtherTeamError)(nil); errors.As(err, &others) {
		none.Message = err.Error() + ": name another in spec.providerConfigRef"
		return reconcile.Result{}, r.leave(ctx, c, tenants.BlocksOf(t, stored), none)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if !policy.IPAM {
		return reconcile.Result{}, r.leave(ctx, c, tenants.BlocksOf(t, stored), tenants.NetworkReady(policy, nil, nil, nil))
	}
	if err := r.hold(ctx, c); err != nil {
		return reconcile.Result{}, err
	}
	blocks, wishes, refusals, err := r.begin(ctx, c, t, policy, stored)
	if err != nil {
		none.Message = oneLine(err.Error()) + "; it is tried again"
		return reconcile.Result{}, errors.Join(err, r.say(ctx, c, blocks, none))
	}
	ready := tenants.NetworkReady(policy, blocks, wishes, refusals)
	if note := tenants.SizeNote(t, policy, blocks); note != "" && ready.Status == metav1.ConditionTrue {
		ready.Message += "; " + note
	}
	if fault != nil && ready.Status == metav1.ConditionTrue {
		ready.Message += "; " + fault.Error()
	}
	if err := r.say(ctx, c, blocks, ready); err != nil {
		return reconcile.Result{}, err
	}
	r.sessions.ensure(c, t, policy)
	r.short.put(req.NamespacedName, len(refusals) > 0 || ready.Reason == v1alpha1.ReasonPoolNotFound)
	if slices.ContainsFunc(wishes, func(w tenants.Wish) bool { return w.Stale != "" }) {
		return reconcile.Result{RequeueAfter: tenants.ReplaceAfter}, nil
	}
	return reconcile.Result{}, nil
}

// leave ends the session of a tenant that gets nothing from here any more, with what it said. Blocks that it has it keeps.
func (r *network) leave(ctx context.Context, c *v1alpha1.TenantCluster, blocks []tenants.Block, ready metav1.Condition) error {
	r.sessions.stop(client.ObjectKeyFromObject(c))
	err := r.say(ctx, c, blocks, ready)
	if err == nil && meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionLoadBalancerIPsAvailable) != nil {
		err = r.applyStatus(ctx, tenantClusterKind, c, ownerGrowth, map[string]any{})
	}
	return err
}

// begin asks for the blocks that a tenant lacks to begin with, beside those that are stored, and returns all that it has then, with an error too.
// refusals is what pools said, by kind.
func (r *network) begin(ctx context.Context, c *v1alpha1.TenantCluster, t tenants.Tenant, p tenants.Policy, stored []v1alpha1.IPAllocation) (
	blocks []tenants.Block, wishes []tenants.Wish, refusals map[v1alpha1.IPAllocationType]tenants.Refusals, err error,
) {
	pools, err := r.pools(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	stored = slices.Clone(stored) // the informer's own
	refusals = map[v1alpha1.IPAllocationType]tenants.Refusals{}
	missing := tenants.Missing(t, p, tenants.BlocksOf(t, stored), pools)
	r.failed.Forget(func(uid types.UID) bool {
		return slices.ContainsFunc(stored, func(a v1alpha1.IPAllocation) bool {
			return a.UID == uid && !slices.ContainsFunc(missing, func(w tenants.Wish) bool { return w.Stale == a.Name })
		})
	})
	for _, w := range missing {
		if at := slices.IndexFunc(stored, func(a v1alpha1.IPAllocation) bool { return a.Name == w.Stale }); at >= 0 {
			if r.Now().Sub(r.failed.Observe(stored[at].UID, r.Now())) >= tenants.ReplaceAfter {
				if _, err := r.drop(ctx, &stored[at]); err != nil {
					return tenants.BlocksOf(t, stored), nil, nil, err
				}
				r.failed.Forget(func(uid types.UID) bool { return uid == stored[at].UID })
			}
			wishes = append(wishes, w)
			continue // its end brings the tenant here again
		}
		try, given, err := tenants.First(w.Tries, func(try tenants.Try) (bool, error) {
			a, fresh, refusal, err := r.create(ctx, t,
				func(taken func(string) bool) string { return tenants.InitialName(t, w.Kind, taken) },
				func(name string) *v1alpha1.IPAllocation {
					return tenants.New(t, w.Kind, v1alpha1.RoleInitial, r.Namespace, name, try.Pool, try.Count)
				})
			switch {
			case err != nil:
				return false, err
			case refusal != "":
				said := refusals[w.Kind]
				said.Add(try.Pool, refusal)
				refusals[w.Kind] = said
				return false, nil
			case fresh:
				r.events.allocated(c, a)
			}
			stored = append(stored, *a)
			return true, nil
		})
		switch {
		case err != nil:
			return tenants.BlocksOf(t, stored), nil, nil, fmt.Errorf("%s for %s from pool %s: %w", allocator.Counted(try.Count, "address"), w.Kind, try.Pool, err)
		case given:
			delete(refusals, w.Kind)
		default:
			wishes = append(wishes, w)
		}
	}
	return tenants.BlocksOf(t, stored), wishes, refusals, nil
}

// say writes NetworkReady and the references to the first blocks, where they differ.
func (r *network) say(ctx context.Context, c *v1alpha1.TenantCluster, blocks []tenants.Block, ready metav1.Condition) error {
	fields, changed := condition(c.Status.Conditions, ready, r.Wall())
	status := map[string]any{"conditions": []any{fields}}
	for _, ref := range []struct {
		field string
		kind  v1alpha1.IPAllocationType
		is    *v1alpha1.LocalObjectReference
	}{
		{"ipAllocationRef", v1alpha1.TypeNodes, c.Status.IPAllocationRef},
		{"lbAllocationRef", v1alpha1.TypeLoadBalancer, c.Status.LBAllocationRef},
	} {
		name := ""
		if at := slices.IndexFunc(blocks, func(b tenants.Block) bool { return b.Kind == ref.kind && !b.Growth && !b.Deleting }); at >= 0 {
			name = blocks[at].Name
			status[ref.field] = map[string]any{"name": name}
		}
		changed = changed || name != nameOf(ref.is)
	}
	if !changed {
		return nil
	}
	if err := r.applyStatus(ctx, tenantClusterKind, c, ownerNetwork, status); err != nil {
		return err
	}
	r.events.networkReady(c, ready)
	return nil
}

func nameOf(ref *v1alpha1.LocalObjectReference) string {
	if ref == nil {
		return ""
	}
	return ref.Name
}

// hold puts our finalizer on a tenant that gets addresses, so that they are released in good order.
func (r *network) hold(ctx context.Context, c *v1alpha1.TenantCluster) error {
	if slices.Contains(c.Finalizers, v1alpha1.FinalizerTenantAddresses) {
		return nil
	}
	u := applied(tenantClusterKind, c, map[string]any{})
	u.SetFinalizers([]string{v1alpha1.FinalizerTenantAddresses}) // others' stay
	return r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(ownerNetwork), client.ForceOwnership)
}
