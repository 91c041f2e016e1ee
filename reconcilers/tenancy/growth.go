package tenancy

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
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// refusal is what pools last said to a tenant that asked for more, and how they were then.
type refusal struct {
	reason, text string

	need  int32
	pools string
	at    time.Time
}

// askAgain is after how long pools that have not changed are asked once more, at the next look.
const askAgain = 30 * time.Second

// grow asks for what waiting Services need, and says what is in the way.
func (s *session) grow(
	ctx context.Context, c *v1alpha1.TenantCluster, t tenants.Tenant, p tenants.Policy, stored []v1alpha1.IPAllocation, pools map[string]*v1alpha1.NetworkPool,
	plan tenants.Plan, partial bool,
) error {
	from := tenants.PoolsFor(p, pools)
	state := &strings.Builder{}
	for _, name := range from {
		fmt.Fprintf(state, "%s %d %d %d;", pools[name].UID, pools[name].Generation, pools[name].Status.AvailableIPs, pools[name].Status.LargestFreeBlock)
	}
	last := s.refusal
	if plan.Need == 0 || last.need != plan.Need || last.pools != state.String() || s.Now().Sub(last.at) >= askAgain {
		s.refusal = refusal{}
	}
	if s.refusal.text == "" && plan.Need > 0 {
		got, said, err := s.ask(ctx, c, t, from, stored, plan)
		if errors.Is(err, errBehind) {
			return nil // the informers bring it
		}
		if err != nil {
			return err
		}
		if got < plan.Need {
			s.refusal = refusal{v1alpha1.ReasonPoolExhausted, "no pool has room: " + said.String(tenants.Absent(p, pools)...), plan.Need - got, state.String(), s.Now()}
			if len(from) == 0 {
				s.refusal.reason, s.refusal.text = v1alpha1.ReasonPoolNotFound, "none of the NetworkPools of the ProviderConfig exists: create "+strings.Join(p.Pools, " or ")
			}
		}
	}
	s.short.put(s.name, s.refusal.text != "")
	return s.sayGrowth(ctx, p, plan, partial)
}

// ask creates blocks of what pools have, in this order, and gives how many addresses that are and what the pools said that had none.
func (s *session) ask(
	ctx context.Context, c *v1alpha1.TenantCluster, t tenants.Tenant, pools []string, stored []v1alpha1.IPAllocation, plan tenants.Plan,
) (got int32, said tenants.Refusals, err error) {
	mine := map[string]bool{} // those that the plan knows of
	for i := range stored {
		mine[stored[i].Name] = true
	}
	got, err = tenants.Spread(pools, plan.Need, plan.Want, func(try tenants.Try) (bool, error) {
		a, fresh, no, err := s.create(ctx, t,
			func(taken func(string) bool) string {
				return tenants.GrowthName(t, func(name string) bool { return mine[name] || taken(name) })
			},
			func(name string) *v1alpha1.IPAllocation {
				return tenants.New(t, v1alpha1.TypeLoadBalancer, v1alpha1.RoleGrowth, s.Namespace, name, try.Pool, try.Count)
			})
		switch {
		case err != nil:
			return false, fmt.Errorf("%d more %s from pool %s: %w", try.Count, allocator.Plural(try.Count, "address"), try.Pool, err)
		case no != "":
			said.Add(try.Pool, no)
			return false, nil
		case !fresh:
			return false, errBehind
		}
		mine[a.Name] = true
		s.metrics.grown(s.name, try.Count)
		s.events.grown(c, a)
		return true, nil
	})
	return got, said, err
}

// errBehind says that a block is there that the informers have yet to show.
var errBehind = errors.New("the informers are behind")

// sayGrowth writes whether every Service that waits for an address can be given one.
func (s *session) sayGrowth(ctx context.Context, p tenants.Policy, plan tenants.Plan, partial bool) error {
	c := metav1.Condition{Type: v1alpha1.ConditionLoadBalancerIPsAvailable, Status: metav1.ConditionFalse}
	switch {
	case partial:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonTooManyServices
		c.Message = fmt.Sprintf("the tenant has more Services of type LoadBalancer than are looked at (%d, or %d bytes of them): the others get no addresses, "+
			"and none are given back; delete some, or raise --tenants-max-services", s.MaxServices, s.MaxServices*keptBytes)
	case plan.Short > 0:
		c.Reason = v1alpha1.ReasonQuotaExceeded
		c.Message = fmt.Sprintf("Services need %s more than the quota allows (quotaPerTenant.maxLoadBalancerIPs %d): raise it, or delete Services",
			allocator.Counted(plan.Short, "address"), p.MaxLoadBalancers)
	case s.refusal.text != "":
		c.Reason, c.Message = s.refusal.reason, s.refusal.text
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, fmt.Sprintf("%s %s", allocator.AmountOf(plan.Addresses...), allocator.Plural(allocator.Total(plan.Addresses), "address"))
	}
	return s.say(ctx, c)
}

// seenWithin is the time in which the informers show what was written. What is not there later somebody has taken away.
const seenWithin = 5 * time.Second

// say writes condition LoadBalancerIPsAvailable where it differs, and tells people of what is in the way.
func (s *session) say(ctx context.Context, c metav1.Condition) error {
	if !s.Serving() {
		return nil // this session is about to end
	}
	cluster := &v1alpha1.TenantCluster{}
	if err := s.Get(ctx, s.name, cluster); err != nil || cluster.UID != s.uid {
		return client.IgnoreNotFound(err)
	}
	applied, changed := condition(cluster.Status.Conditions, c, s.Wall())
	if !changed || s.said == c && s.Now().Sub(s.saidAt) < seenWithin {
		return nil
	}
	if err := s.applyStatus(ctx, tenantClusterKind, cluster, ownerGrowth, map[string]any{"conditions": []any{applied}}); err != nil {
		return err
	}
	if s.said.Reason != c.Reason {
		s.events.growth(cluster, c)
	}
	s.said, s.saidAt = c, s.Now()
	return nil
}

// sayDown says that nothing is known of the tenant.
func (s *session) sayDown(ctx context.Context, why error) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionLoadBalancerIPsAvailable, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonTenantUnreachable,
		Message: "the tenant's API server does not answer: " + oneLine(why.Error()),
	}
	if denied := (accessError{}); errors.As(why, &denied) || apierrors.IsUnauthorized(why) || apierrors.IsForbidden(why) {
		c.Reason, c.Message = v1alpha1.ReasonAccessDenied, "no access to the tenant: "+oneLine(why.Error())
	}
	if err := s.say(ctx, c); err != nil {
		s.told = false // the next attempt says it
	}
}

// longest is how long a text of a tenant's may be that is passed on, in bytes.
const longest = 256

func oneLine(text string) string { return fields.OneLine(text, longest) }
