package tenants

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/allocations"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

// initialResult is what a tenant has after an attempt to allocate its initial blocks.
type initialResult struct {
	blocks   []plan.Block
	missing  []plan.MissingBlock
	refusals map[v1alpha1.IPAllocationType]plan.Refusals // answers of pools without room
}

// allocateInitial allocates the initial blocks that a tenant lacks. With an error, only the blocks of the result are set.
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
	for _, m := range missing {
		if at := slices.IndexFunc(stored, func(a v1alpha1.IPAllocation) bool { return a.Name == m.Replaces }); at >= 0 {
			if err := r.deleteFailed(ctx, &stored[at]); err != nil {
				return initialResult{blocks: plan.BlocksOf(t, stored)}, err
			}
			result.missing = append(result.missing, m)
			continue // the DELETED event queues the tenant again
		}
		candidate, allocated, err := plan.AllocateFirst(m.Candidates, func(candidate plan.Candidate) (bool, error) {
			created, err := r.createInitial(ctx, t, m.Kind, candidate)
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

func (r *tenantReconciler) createInitial(ctx context.Context, t plan.Tenant, kind v1alpha1.IPAllocationType, candidate plan.Candidate) (allocations.Result, error) {
	return r.allocations.Create(ctx, allocations.Request{
		Tenant:     t,
		ChooseName: func(isTaken func(string) bool) string { return plan.InitialName(t, kind, isTaken) },
		Build: func(name string) *v1alpha1.IPAllocation {
			return plan.NewAllocation(t, kind, v1alpha1.RoleInitial, r.Namespace, name, candidate.Pool, candidate.Count)
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

// deleteFailed deletes a failed block once its failure has been observed for plan.ReplaceAfter.
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
