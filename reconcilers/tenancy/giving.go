package tenancy

import (
	"context"
	"errors"
	"slices"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// giving deletes blocks.
type giving struct {
	*session
	*connection
	cluster *v1alpha1.TenantCluster
	metallb tenants.MetalLB
	stored  []v1alpha1.IPAllocation
	blocks  []tenants.Block
}

// back releases blocks that nobody uses any more. The tenant itself is asked first: what is known of it may be a moment old.
func (g *giving) back(ctx context.Context, names []string) error {
	var errs []error
	for _, b := range g.blocks {
		if !slices.Contains(names, b.Name) {
			continue
		}
		used, err := g.usesLive(ctx, b, g.metallb)
		if err == nil && !used {
			err = g.delete(ctx, b.Name, func(a *v1alpha1.IPAllocation) {
				g.metrics.shrunk(g.name, b.Range.Size())
				g.events.shrunk(g.cluster, a)
			})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// failed deletes blocks that could not be had.
func (g *giving) failed(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, g.delete(ctx, name, func(*v1alpha1.IPAllocation) {}))
	}
	return errors.Join(errs...)
}

func (g *giving) delete(ctx context.Context, name string, done func(*v1alpha1.IPAllocation)) error {
	for i := range g.stored {
		a := &g.stored[i]
		if a.Name != name {
			continue
		}
		dropped, err := g.drop(ctx, a)
		if dropped {
			done(a)
		}
		return err
	}
	return nil
}
