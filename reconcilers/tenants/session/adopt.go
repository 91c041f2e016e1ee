package session

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/allocations"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/remote"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// isForeign reports whether the tenant's MetalLB pool may be of others: its ranges were
// not adopted yet, or the pool exists and IPAM has not written it.
func (s *session) isForeign(cluster *v1alpha1.TenantCluster, c *remote.Connection) bool {
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionAddressesAdopted) {
		return true
	}
	pool := c.Pool()
	return pool != nil && s.written.entries == nil && !remote.WrittenByIPAM(pool)
}

// adoption allocates to a tenant the addresses that its MetalLB pools and Services use,
// before the session writes to the tenant.
type adoption struct {
	*session
	cluster *v1alpha1.TenantCluster
	tenant  plan.Tenant
	policy  plan.Policy
	blocks  []plan.Block
	pools   map[string]*v1alpha1.NetworkPool
	view    plan.View
}

// adoptionDenials are the last denials of adoptions. While the pools remain equal, denied
// ranges are not requested again, for at most repeatAfter.
type adoptionDenials struct {
	byRange map[allocator.Range]string
	pools   string // fingerprint of the pools
	at      time.Time
}

// allocate requests what is to be adopted. created: a block is new, and the next decision
// includes it. The obstacles say what cannot be adopted.
func (a *adoption) allocate(ctx context.Context) (created bool, obstacles []plan.Obstacle, err error) {
	requests, obstacles := plan.FindAdoptions(a.policy, a.blocks, a.view, a.pools)
	if pools := a.poolFingerprint(plan.UsablePools(a.policy, a.pools), a.pools); a.denials.pools != pools || a.Now().Sub(a.denials.at) >= repeatAfter {
		a.denials = adoptionDenials{byRange: map[allocator.Range]string{}, pools: pools, at: a.Now()}
	}
	for _, request := range requests {
		denied, err := plan.AdoptParts(request, func(r allocator.Range) (bool, error) {
			allocated, err := a.adoptRange(ctx, request.Pool, r)
			created = created || allocated
			return allocated, err
		})
		if err != nil {
			return created, obstacles, err
		}
		for _, r := range denied {
			obstacles = append(obstacles, plan.Obstacle{Reason: v1alpha1.ReasonAddressConflict, Message: fmt.Sprintf("%s not adopted: %s", r, a.denials.byRange[r])})
		}
	}
	return created, obstacles, nil
}

// adoptRange requests one range, unless it was denied a short while ago.
func (a *adoption) adoptRange(ctx context.Context, pool string, r allocator.Range) (allocated bool, err error) {
	if _, denied := a.denials.byRange[r]; denied {
		return false, nil
	}
	result, err := a.Allocations.Create(ctx, allocations.Request{
		Tenant:     a.tenant,
		ChooseName: func(isTaken func(string) bool) string { return plan.AdoptedName(a.tenant, r, isTaken) },
		Build: func(name string) *v1alpha1.IPAllocation {
			return plan.NewAdoption(a.tenant, a.Allocations.Namespace, name, pool, r)
		},
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("%s, which the tenant uses, from pool %s: %w", r, pool, err)
	case result.Refusal != "":
		// The range may be the tenant's: another controller allocates the range that the
		// TenantCluster names.
		if behind, err := a.Allocations.HasOthers(ctx, a.tenant, a.blocks); behind || err != nil {
			return behind, err
		}
		a.denials.byRange[r] = result.Refusal
		return false, nil
	case result.Created:
		a.Events.RecordAdoption(a.cluster, result.Allocation)
	}
	return true, nil // also a block that the informers have not shown yet
}

// writeAdopted writes condition AddressesAdopted.
func (s *session) writeAdopted(ctx context.Context, c metav1.Condition) error {
	return s.writeCondition(ctx, report.OwnerAdoption, c, &s.adopted, s.Events.RecordNotAdopted)
}

// reportMetalLBMissing reports that nothing can be adopted yet. The first addresses are
// allocated nevertheless.
func (s *session) reportMetalLBMissing(ctx context.Context, cluster *v1alpha1.TenantCluster) error {
	if meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionAddressesAdopted) {
		return nil
	}
	return s.writeAdopted(ctx, metav1.Condition{
		Type: v1alpha1.ConditionAddressesAdopted, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonMetalLBMissing,
		Message: "the tenant does not serve IPAddressPool and L2Advertisement of metallb.io/v1beta1: install MetalLB",
	})
}
