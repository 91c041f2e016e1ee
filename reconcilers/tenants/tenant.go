package tenants

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/tenants/allocations"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
	"butlerlabs.dev/ipam/reconcilers/tenants/session"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=tenantclusters,verbs=patch
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=tenantclusters/status,verbs=patch

// tenantReconciler allocates the initial blocks of each TenantCluster, runs a session for
// the tenant, and releases the blocks of a deleted TenantCluster.
type tenantReconciler struct {
	*deps
	sessions       *session.Manager
	waiting        *allocations.WaitingTenants   // tenants whose initial blocks wait for a pool, or for room in a pool
	releaseReasons lastReasons                   // why the release of a deleted tenant waits
	failures       flow.FirstObserved[types.UID] // failed blocks that will be replaced
}

// Reconcile implements reconcile.Reconciler.
func (r *tenantReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c := &v1alpha1.TenantCluster{}
	err := r.platform.Get(ctx, req.NamespacedName, c)
	if err == nil && c.DeletionTimestamp != nil {
		_ = r.releaseTimeLeft(c) // observed on every replica, so that a new leader does not begin to count again
	}
	if !r.Ledger.MayGrant() {
		return reconcile.Result{}, nil
	}
	if err != nil {
		r.forgetTenant(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if c.DeletionTimestamp != nil {
		r.waiting.SetWaiting(req.NamespacedName, false)
		return r.releaseTenant(ctx, c)
	}
	t, specErr := plan.TenantOf(c)
	stored, err := r.allocations.ListOf(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	policy, err := r.findPolicy(ctx, c)
	if message := explainNoPolicy(err); message != "" {
		return reconcile.Result{}, r.endService(ctx, c, plan.BlocksOf(t, stored), networkNotReady(message))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if !policy.IPAM {
		return reconcile.Result{}, r.endService(ctx, c, plan.BlocksOf(t, stored), plan.NetworkReadyCondition(policy, nil, nil, nil))
	}
	if err := r.addFinalizer(ctx, c); err != nil {
		return reconcile.Result{}, err
	}
	result, err := r.allocateInitial(ctx, c, t, policy, stored)
	if err != nil {
		return reconcile.Result{}, errors.Join(err, r.writeNetworkReady(ctx, c, result.blocks, networkNotReady(report.ShortenText(err.Error())+"; the controller retries")))
	}
	ready := plan.NetworkReadyCondition(policy, result.blocks, result.missing, result.refusals)
	if ready.Status == metav1.ConditionTrue {
		for _, note := range []string{plan.ExplainPoolSize(t, policy, result.blocks), plan.ExplainManualRange(t, result.blocks)} {
			if note != "" {
				ready.Message += "; " + note
			}
		}
		if specErr != nil {
			ready.Message += "; " + specErr.Error()
		}
	}
	if err := r.writeNetworkReady(ctx, c, result.blocks, ready); err != nil {
		return reconcile.Result{}, err
	}
	r.sessions.Ensure(c, t, policy)
	r.waiting.SetWaiting(req.NamespacedName, len(result.refusals) > 0 || ready.Reason == v1alpha1.ReasonPoolNotFound)
	switch {
	case slices.ContainsFunc(result.missing, func(m plan.MissingBlock) bool { return m.Retry }):
		return reconcile.Result{RequeueAfter: retryInterval}, nil
	case slices.ContainsFunc(result.missing, func(m plan.MissingBlock) bool { return m.Replaces != "" }):
		return reconcile.Result{RequeueAfter: plan.ReplaceAfter}, nil
	}
	return reconcile.Result{}, nil
}

// retryInterval is the pause between two checks whether addresses in use are recorded.
const retryInterval = 250 * time.Millisecond

// forgetTenant removes the state of a TenantCluster that does not exist.
func (r *tenantReconciler) forgetTenant(name types.NamespacedName) {
	r.deletions.ForgetIf(func(id objectID) bool { return id.name == name })
	r.sessions.Stop(name)
	r.waiting.SetWaiting(name, false)
	r.releaseReasons.update(name, "")
}

// explainNoPolicy returns the message for a TenantCluster without a usable
// ProviderConfig; "" for other errors.
func explainNoPolicy(err error) string {
	if apierrors.IsNotFound(err) {
		return err.Error() + ": create the ProviderConfig, or name another in spec.providerConfigRef"
	}
	if otherTeam := (*plan.OtherTeamError)(nil); errors.As(err, &otherTeam) {
		return err.Error() + ": name another ProviderConfig in spec.providerConfigRef"
	}
	return ""
}

func networkNotReady(message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNetworkNotReady, Message: message}
}

// endService stops the session of a tenant without addresses from IPAM, and removes the
// conditions of the session. The tenant keeps the allocated blocks.
func (r *tenantReconciler) endService(ctx context.Context, c *v1alpha1.TenantCluster, blocks []plan.Block, ready metav1.Condition) error {
	r.sessions.Stop(client.ObjectKeyFromObject(c))
	errs := []error{r.writeNetworkReady(ctx, c, blocks, ready)}
	for condition, owner := range map[string]string{
		v1alpha1.ConditionLoadBalancerIPsAvailable: report.OwnerGrowth, v1alpha1.ConditionAddressesAdopted: report.OwnerAdoption,
	} {
		if meta.FindStatusCondition(c.Status.Conditions, condition) != nil {
			errs = append(errs, r.status.Apply(ctx, platform.TenantClusterKind, c, owner, map[string]any{}))
		}
	}
	return errors.Join(errs...)
}

// writeNetworkReady writes the condition and the references to the initial blocks if they
// differ from the stored status.
func (r *tenantReconciler) writeNetworkReady(ctx context.Context, c *v1alpha1.TenantCluster, blocks []plan.Block, ready metav1.Condition) error {
	content, changed := report.ConditionFields(c.Status.Conditions, ready, r.Wall())
	status := map[string]any{"conditions": []any{content}}
	for _, ref := range []struct {
		field  string
		kind   v1alpha1.IPAllocationType
		stored *v1alpha1.LocalObjectReference
	}{
		{"ipAllocationRef", v1alpha1.TypeNodes, c.Status.IPAllocationRef},
		{"lbAllocationRef", v1alpha1.TypeLoadBalancer, c.Status.LBAllocationRef},
	} {
		name := ""
		if at := slices.IndexFunc(blocks, func(b plan.Block) bool { return b.Kind == ref.kind && !b.Growth && !b.Deleting }); at >= 0 {
			name = blocks[at].Name
			status[ref.field] = map[string]any{"name": name}
		}
		changed = changed || name != nameOf(ref.stored)
	}
	if !changed {
		return nil
	}
	if err := r.status.Apply(ctx, platform.TenantClusterKind, c, report.OwnerNetwork, status); err != nil {
		return err
	}
	r.events.RecordNetworkNotReady(c, ready)
	return nil
}

func nameOf(ref *v1alpha1.LocalObjectReference) string {
	if ref == nil {
		return ""
	}
	return ref.Name
}

// addFinalizer adds the finalizer with which the deletion of a tenant waits for the
// release of the addresses.
func (r *tenantReconciler) addFinalizer(ctx context.Context, c *v1alpha1.TenantCluster) error {
	if slices.Contains(c.Finalizers, v1alpha1.FinalizerTenantAddresses) {
		return nil
	}
	u := report.ApplyObject(platform.TenantClusterKind, c, map[string]any{})
	u.SetFinalizers([]string{v1alpha1.FinalizerTenantAddresses}) // an apply keeps finalizers of other managers
	return r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(report.OwnerNetwork), client.ForceOwnership)
}
