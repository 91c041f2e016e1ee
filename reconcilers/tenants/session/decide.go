package session

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/remote"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations,verbs=patch

// decide makes a decision and carries out each step, even after an error in another step.
// The result is the time of the next decision without a change before; zero for never.
func (s *session) decide(ctx context.Context, c *remote.Connection) (time.Time, error) {
	if !s.Leads() {
		return time.Time{}, nil // another replica leads, and this session is about to be stopped
	}
	cluster, t, p := s.currentCluster()
	stored, err := s.Allocations.ListOf(ctx, s.name)
	if err != nil {
		return time.Time{}, err
	}
	pools, err := s.Allocations.ListPools(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if !c.IsSynced() {
		return time.Time{}, s.reportMetalLBMissing(ctx, cluster) // the CRDs of MetalLB trigger the next decision
	}
	blocks := plan.BlocksOf(t, stored)
	s.useOwnClock(blocks)
	metallb := plan.MetalLB{Families: offeredFamilies(blocks, p, pools)}
	view := s.observeTenant(c, metallb, blocks)
	view.Foreign = s.isForeign(cluster, c)
	var obstacles []plan.Obstacle
	if view.Foreign {
		a := &adoption{session: s, cluster: cluster, tenant: t, policy: p, blocks: blocks, pools: pools, view: view}
		created, found, err := a.allocate(ctx)
		if created || err != nil {
			return time.Time{}, err // the event of the block triggers the next decision
		}
		obstacles = found
	}
	decision := plan.Decide(t.WithoutManaged(p, pools), p, blocks, view, s.Timing, s.Now())
	s.Metrics.SetServices(s.name, plan.CountServices(view.Services), decision.OverQuota)
	g := &growth{session: s, cluster: cluster, tenant: t, policy: p, stored: stored, pools: pools, decision: decision, partial: view.Partial, obstacles: obstacles}
	r := &release{session: s, connection: c, cluster: cluster, metallb: metallb, stored: stored, blocks: blocks}
	err = errors.Join(
		s.syncMetalLB(ctx, c, cluster, decision),
		s.recordIdleTimes(ctx, stored, decision),
		g.ensureAddresses(ctx),
		r.releaseIdle(ctx, decision.Release),
		r.deleteFailed(ctx, decision.Discard),
		s.labelIngress(ctx, c),
	)
	if !view.Foreign || err != nil {
		return decision.Next, err
	}
	adopted := plan.AdoptionCondition(blocks, view, decision, obstacles)
	if again := s.denials.at.Add(repeatAfter); len(obstacles) > 0 && (decision.Next.IsZero() || again.Before(decision.Next)) {
		decision.Next = again
	}
	return decision.Next, s.writeAdopted(ctx, adopted)
}

// recordIdleTimes writes or removes annotation idle-since of blocks that became idle or
// used. The annotation lets the idle time survive a restart.
func (s *session) recordIdleTimes(ctx context.Context, stored []v1alpha1.IPAllocation, decision plan.Decision) error {
	var errs []error
	for i := range stored {
		becameIdle, becameUsed := slices.Contains(decision.BecameIdle, stored[i].Name), slices.Contains(decision.BecameUsed, stored[i].Name)
		if !becameIdle && !becameUsed {
			continue
		}
		a := stored[i].DeepCopy()
		if delete(a.Annotations, v1alpha1.AnnotationIdleSince); becameIdle {
			metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationIdleSince, s.Wall().UTC().Format(time.RFC3339Nano))
		}
		err := s.Client.Patch(ctx, a, client.MergeFromWithOptions(&stored[i], client.MergeFromWithOptimisticLock{}))
		errs = append(errs, write.IgnoreStale(ctx, s.Platform.Live, &stored[i], err))
	}
	return errors.Join(errs...)
}
