package session

import (
	"context"
	"errors"
	"slices"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/remote"
)

// release deletes blocks of one decision.
type release struct {
	*session
	connection *remote.Connection
	cluster    *v1alpha1.TenantCluster
	metallb    plan.MetalLB
	stored     []v1alpha1.IPAllocation
	blocks     []plan.Block
}

// releaseIdle deletes idle growth blocks. The tenant is read once more before each
// delete, because the mirrors may be behind.
func (r *release) releaseIdle(ctx context.Context, names []string) error {
	var errs []error
	for _, b := range r.blocks {
		if !slices.Contains(names, b.Name) {
			continue
		}
		used, err := r.connection.UsesRange(ctx, b.Range, r.metallb)
		if err == nil && !used {
			err = r.deleteBlock(ctx, b.Name, func(a *v1alpha1.IPAllocation) {
				r.Metrics.CountShrink(r.name, b.Range.Size())
				r.Events.RecordShrink(r.cluster, a, r.Timing.ShrinkAfter)
			})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// deleteFailed deletes blocks that failed to get addresses.
func (r *release) deleteFailed(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, r.deleteBlock(ctx, name, func(*v1alpha1.IPAllocation) {}))
	}
	return errors.Join(errs...)
}

func (r *release) deleteBlock(ctx context.Context, name string, onDeleted func(*v1alpha1.IPAllocation)) error {
	for i := range r.stored {
		a := &r.stored[i]
		if a.Name != name {
			continue
		}
		deleted, err := r.Allocations.Delete(ctx, a)
		if deleted {
			onDeleted(a)
		}
		return err
	}
	return nil
}
