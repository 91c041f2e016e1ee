package tenants

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/allocations"
	"butlerlabs.dev/ipam/reconcilers/tenants/kubeconfig"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

// initialResult is what a tenant has after an attempt to allocate its initial blocks.
type initialResult struct {
	blocks   []plan.Block
	missing  []plan.MissingBlock
	refusals map[v1alpha1.IPAllocationType]plan.Refusals // answers of pools without room
}

// allocateInitial allocates the initial blocks that a tenant lacks. With an error, only
// the blocks of the result are set.
func (r *tenantReconciler) allocateInitial(
	ctx context.Context, c *v1alpha1.TenantCluster, t plan.Tenant, p plan.Policy, stored []v1alpha1.IPAllocation,
) (initialResult, error) {
	pools, err := r.allocations.ListPools(ctx)
	if err != nil {
		return initialResult{}, err
	}
	stored = slices.Clone(stored) // belongs to the informer
	result := initialResult{refusals: map[v1alpha1.IPAllocationType]plan.Refusals{}}
	missing := plan.MissingBlocks(t, p, plan.BlocksOf(t, stored), pools)
	r.forgetRecovered(stored, missing)
	if missing, err = r.awaitUsers(ctx, c, missing, pools); err != nil {
		return initialResult{blocks: plan.BlocksOf(t, stored)}, err
	}
	for _, m := range missing {
		if m.Obstacle.Reason != "" {
			result.missing = append(result.missing, m)
			continue
		}
		if at := slices.IndexFunc(stored, func(a v1alpha1.IPAllocation) bool { return a.Name == m.Replaces }); at >= 0 {
			if err := r.deleteFailed(ctx, &stored[at]); err != nil {
				return initialResult{blocks: plan.BlocksOf(t, stored)}, err
			}
			result.missing = append(result.missing, m)
			continue // the DELETED event queues the tenant again
		}
		candidate, allocated, err := plan.AllocateFirst(m.Candidates, func(candidate plan.Candidate) (bool, error) {
			created, err := r.createInitial(ctx, t, m, candidate)
			switch {
			case err != nil:
				return false, err
			case created.Refusal != "":
				refusals := result.refusals[m.Kind]
				refusals.Add(candidate.Pool, created.Refusal)
				result.refusals[m.Kind] = refusals
				return false, nil
			case created.Created:
				r.events.RecordInitial(c, created.Allocation)
			}
			stored = append(stored, *created.Allocation)
			return true, nil
		})
		switch {
		case err != nil:
			err = fmt.Errorf("%s for %s from pool %s: %w", allocator.Counted(candidate.Count, "address"), m.Kind, candidate.Pool, err)
			return initialResult{blocks: plan.BlocksOf(t, stored)}, err
		case allocated:
			delete(result.refusals, m.Kind)
		default:
			result.missing = append(result.missing, m)
		}
	}
	result.blocks = plan.BlocksOf(t, stored)
	return result, nil
}

// awaitUsers returns the missing blocks, with obstacles while addresses may be in use and
// not be recorded yet:
//
//	addresses that the tenant's Services use               until the session has adopted them
//	ranges that TenantClusters name                        until they are allocated
func (r *tenantReconciler) awaitUsers(
	ctx context.Context, c *v1alpha1.TenantCluster, missing []plan.MissingBlock, pools map[string]*v1alpha1.NetworkPool,
) ([]plan.MissingBlock, error) {
	missing, err := r.adoptFirst(ctx, c, missing)
	if err != nil || !plan.TakesAny(missing) {
		return missing, err
	}
	promised, err := r.listPromised(ctx, c, pools)
	if err != nil {
		return nil, err
	}
	return plan.Delay(missing, func(pool string) string {
		return plan.ExplainPromised(pools[pool], promised)
	}), nil
}

// listPromised returns the ranges that other TenantClusters name and have not got yet. A
// denied range is not promised.
func (r *tenantReconciler) listPromised(ctx context.Context, c *v1alpha1.TenantCluster, pools map[string]*v1alpha1.NetworkPool) ([]plan.Promised, error) {
	all := &v1alpha1.TenantClusterList{}
	if err := r.platform.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var promised []plan.Promised
	for i := range all.Items {
		other := &all.Items[i]
		t, _ := plan.TenantOf(other)
		if !t.ManualRange.IsValid() || other.UID == c.UID || other.DeletionTimestamp != nil {
			continue
		}
		if ready := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionNetworkReady); ready != nil && ready.Reason == v1alpha1.ReasonAddressConflict {
			continue
		}
		policy, err := r.findPolicy(ctx, other)
		if err != nil {
			continue // no addresses are allocated to the other tenant
		}
		stored, err := r.allocations.ListOf(ctx, client.ObjectKeyFromObject(other))
		if err != nil {
			return nil, err
		}
		if p, pending := plan.FindPromised(t, plan.MissingBlocks(t, policy, plan.BlocksOf(t, stored), pools)); pending {
			promised = append(promised, p)
		}
	}
	return promised, nil
}

// adoptFirst returns the missing blocks for a tenant that may have Services with
// addresses: while the session has not looked, the block for load balancers is not
// requested. A tenant without a kubeconfig has no Services.
func (r *tenantReconciler) adoptFirst(ctx context.Context, c *v1alpha1.TenantCluster, missing []plan.MissingBlock) ([]plan.MissingBlock, error) {
	if c.Status.TenantNamespace == "" || meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionAddressesAdopted) != nil || !plan.NeedsAdoption(missing) {
		return missing, nil
	}
	_, err := r.secrets.Secrets(c.Status.TenantNamespace).Get(ctx, kubeconfig.SecretName(c.Name), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return missing, nil
	case err != nil:
		return nil, err
	}
	return plan.AfterAdoption(missing), nil
}

func (r *tenantReconciler) createInitial(ctx context.Context, t plan.Tenant, m plan.MissingBlock, candidate plan.Candidate) (allocations.Result, error) {
	return r.allocations.Create(ctx, allocations.Request{
		Tenant:     t,
		ChooseName: func(isTaken func(string) bool) string { return plan.InitialName(t, m.Kind, isTaken) },
		Build: func(name string) *v1alpha1.IPAllocation {
			a := plan.NewAllocation(t, m.Kind, v1alpha1.RoleInitial, r.Namespace, name, candidate.Pool, candidate.Count)
			a.Spec.PinnedRange = m.Pinned
			return a
		},
	})
}

// forgetRecovered forgets the failures of stored blocks that no missing block replaces.
func (r *tenantReconciler) forgetRecovered(stored []v1alpha1.IPAllocation, missing []plan.MissingBlock) {
	r.failures.ForgetIf(func(uid types.UID) bool {
		return slices.ContainsFunc(stored, func(a v1alpha1.IPAllocation) bool {
			return a.UID == uid && !slices.ContainsFunc(missing, func(m plan.MissingBlock) bool { return m.Replaces == a.Name })
		})
	})
}

// deleteFailed deletes a failed block once its failure has been observed for
// plan.ReplaceAfter.
func (r *tenantReconciler) deleteFailed(ctx context.Context, a *v1alpha1.IPAllocation) error {
	if r.Now().Sub(r.failures.Observe(a.UID, r.Now())) < plan.ReplaceAfter {
		return nil
	}
	if _, err := r.allocations.Delete(ctx, a); err != nil {
		return err
	}
	r.failures.ForgetIf(func(uid types.UID) bool { return uid == a.UID })
	return nil
}
