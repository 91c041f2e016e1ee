package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/allocations"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/reconcilers/tenants/remote"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// growth creates the growth blocks of one decision.
type growth struct {
	*session
	cluster  *v1alpha1.TenantCluster
	tenant   plan.Tenant
	policy   plan.Policy
	stored   []v1alpha1.IPAllocation
	pools    map[string]*v1alpha1.NetworkPool
	decision plan.Decision
	partial  bool // not all Services are known

	obstacles []plan.Obstacle // of adoptions, which may be possible once a pool has room
}

// denial is the last answer of pools without room, with the inputs of the answer. While
// the inputs remain equal the pools are not asked again, for at most repeatAfter.
type denial struct {
	reason, message string // message is "" if no pool denied

	need  int32
	pools string // fingerprint of the pools
	at    time.Time
}

// repeatAfter is the time after which unchanged pools are asked again, at the next
// decision.
const repeatAfter = 30 * time.Second

// ensureAddresses allocates what waiting Services need, and writes condition
// LoadBalancerIPsAvailable.
func (g *growth) ensureAddresses(ctx context.Context) error {
	usable := plan.UsablePools(g.policy, g.pools)
	fingerprint := g.poolFingerprint(usable, g.pools)
	last := g.denial
	if g.decision.Need == 0 || last.need != g.decision.Need || last.pools != fingerprint || g.Now().Sub(last.at) >= repeatAfter {
		g.denial = denial{}
	}
	if g.denial.message == "" && g.decision.Need > 0 {
		allocated, refusals, err := g.allocate(ctx, usable)
		if errors.Is(err, errInformersBehind) {
			return nil // the event of the block triggers the next decision
		}
		if err != nil {
			return err
		}
		if allocated < g.decision.Need {
			g.denial = denial{
				reason: v1alpha1.ReasonPoolExhausted, message: "no pool has room: " + refusals.String(plan.UnusablePools(g.policy, g.pools)...),
				need: g.decision.Need - allocated, pools: fingerprint, at: g.Now(),
			}
			if len(usable) == 0 {
				g.denial.reason, g.denial.message = v1alpha1.ReasonPoolNotFound, "none of the NetworkPools of the ProviderConfig exists: create "+strings.Join(g.policy.Pools, " or ")
			}
		}
	}
	g.waiting.SetWaiting(g.name, g.denial.message != "" || len(g.obstacles) > 0)
	return g.writeAvailable(ctx, g.growthCondition())
}

// poolFingerprint returns a text that changes with the specs and the free addresses of
// pools.
func (s *session) poolFingerprint(names []string, pools map[string]*v1alpha1.NetworkPool) string {
	text := &strings.Builder{}
	for _, name := range names {
		pool := pools[name]
		fmt.Fprintf(text, "%s %d %d %d;", pool.UID, pool.Generation, pool.Status.AvailableIPs, pool.Status.LargestFreeBlock)
	}
	return text.String()
}

// errInformersBehind reports an allocation that the informers have not shown yet.
var errInformersBehind = errors.New("the informers are behind the API server")

// allocate creates growth blocks from the pools, in order. It returns the number of
// addresses allocated and the answers of pools without room.
func (g *growth) allocate(ctx context.Context, pools []string) (allocated int32, refusals plan.Refusals, err error) {
	known := map[string]bool{} // names of blocks that the decision includes
	for i := range g.stored {
		known[g.stored[i].Name] = true
	}
	allocated, err = plan.AllocateParts(pools, g.decision.Need, g.decision.Want, func(candidate plan.Candidate) (bool, error) {
		result, err := g.Allocations.Create(ctx, allocations.Request{
			Tenant: g.tenant,
			ChooseName: func(isTaken func(string) bool) string {
				return plan.GrowthName(g.tenant, func(name string) bool { return known[name] || isTaken(name) })
			},
			Build: func(name string) *v1alpha1.IPAllocation {
				return plan.NewAllocation(g.tenant, v1alpha1.TypeLoadBalancer, v1alpha1.RoleGrowth, g.Allocations.Namespace, name, candidate.Pool, candidate.Count)
			},
		})
		switch {
		case err != nil:
			return false, fmt.Errorf("%d more %s from pool %s: %w", candidate.Count, allocator.Plural(candidate.Count, "address"), candidate.Pool, err)
		case result.Refusal != "":
			refusals.Add(candidate.Pool, result.Refusal)
			return false, nil
		case !result.Created:
			return false, errInformersBehind
		}
		known[result.Allocation.Name] = true
		g.Metrics.CountGrowth(g.name, candidate.Count)
		g.Events.RecordGrowth(g.cluster, result.Allocation, g.decision.Need)
		return true, nil
	})
	return allocated, refusals, err
}

// growthCondition returns condition LoadBalancerIPsAvailable: whether every waiting
// Service can get an address.
func (g *growth) growthCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLoadBalancerIPsAvailable, Status: metav1.ConditionFalse}
	switch {
	case g.partial:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonTooManyServices
		c.Message = fmt.Sprintf("the tenant has more Services of type LoadBalancer than are read (%d, or %d bytes): the other Services get no addresses, "+
			"and no addresses are released; delete Services, or raise --tenants-max-services", g.MaxServices, g.MaxServices*remote.BytesPerObject)
	case g.decision.KeepPool:
		c.Reason, c.Message = v1alpha1.ReasonReconciling, "IPAddressPool "+plan.MetalLBPool+" stays as it is until its addresses are adopted: see condition "+v1alpha1.ConditionAddressesAdopted
	case g.decision.OverQuota > 0:
		c.Reason = v1alpha1.ReasonQuotaExceeded
		c.Message = fmt.Sprintf("Services need %s more than the quota allows (quotaPerTenant.maxLoadBalancerIPs %d): raise the quota, or delete Services",
			allocator.Counted(g.decision.OverQuota, "address"), g.policy.MaxLoadBalancers)
	case g.denial.message != "":
		c.Reason, c.Message = g.denial.reason, g.denial.message
	default:
		offered := g.decision.Offered
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, fmt.Sprintf("%s %s", allocator.AmountOf(offered...), allocator.Plural(allocator.Total(offered), "address"))
	}
	return c
}

// observeTimeout is the time in which the informers show a written condition. If they
// show another condition later, another writer changed it.
const observeTimeout = 5 * time.Second

// writtenCondition is a condition as this session last wrote it.
type writtenCondition struct {
	metav1.Condition
	at time.Time
}

// writeAvailable writes condition LoadBalancerIPsAvailable.
func (s *session) writeAvailable(ctx context.Context, c metav1.Condition) error {
	return s.writeCondition(ctx, report.OwnerGrowth, c, &s.available, func(cluster *v1alpha1.TenantCluster, c metav1.Condition) {
		s.boundedEvents().RecordGrowthPrevented(cluster, c)
	})
}

// writeCondition writes a condition, the only one of a field manager, if it differs from
// the stored condition, and records an event if its reason is new.
func (s *session) writeCondition(
	ctx context.Context, owner string, c metav1.Condition, written *writtenCondition, record func(*v1alpha1.TenantCluster, metav1.Condition),
) error {
	if !s.Leads() {
		return nil // this session is about to be stopped
	}
	cluster := &v1alpha1.TenantCluster{}
	if err := s.Platform.Get(ctx, s.name, cluster); err != nil || cluster.UID != s.uid {
		return client.IgnoreNotFound(err)
	}
	content, changed := report.ConditionFields(cluster.Status.Conditions, c, s.Wall())
	if !changed || written.Condition == c && s.Now().Sub(written.at) < observeTimeout {
		return nil
	}
	if err := s.Status.Apply(ctx, platform.TenantClusterKind, cluster, owner, map[string]any{"conditions": []any{content}}); err != nil {
		return err
	}
	if written.Reason != c.Reason {
		record(cluster, c)
	}
	*written = writtenCondition{c, s.Now()}
	return nil
}

// reportOutage sets LoadBalancerIPsAvailable to Unknown, with the error that ended the
// connection.
func (s *session) reportOutage(ctx context.Context, err error) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionLoadBalancerIPsAvailable, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonTenantUnreachable,
		Message: "the tenant's API server does not answer: " + report.ShortenText(err.Error()),
	}
	if denied := (remote.AccessError{}); errors.As(err, &denied) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		c.Reason, c.Message = v1alpha1.ReasonAccessDenied, "no access to the tenant: "+report.ShortenText(err.Error())
	}
	if err := s.writeAvailable(ctx, c); err != nil {
		s.outageReported = false // the next attempt to connect reports again
	}
}
