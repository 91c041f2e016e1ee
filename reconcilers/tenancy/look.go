package tenancy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations,verbs=patch

// look decides what the tenant should have and brings it there, one thing after the other: what fails holds up nothing else. It returns when to
// look again if nothing changes before; zero for never.
func (s *session) look(ctx context.Context, c *connection) (time.Time, error) {
	if !s.Serving() {
		return time.Time{}, nil // another replica does it, and this session is about to end
	}
	cluster, t, p := s.current()
	stored, err := s.allocationsOf(ctx, s.name)
	if err != nil {
		return time.Time{}, err
	}
	pools, err := s.pools(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if !c.whole() {
		return time.Time{}, nil // MetalLB comes later
	}
	blocks := tenants.BlocksOf(t, stored)
	metallb := tenants.MetalLB{Families: familiesOf(blocks, p, pools)}
	view := s.view(c, metallb, blocks)
	plan := tenants.Decide(t, p, blocks, view, s.Timing, s.Now())
	s.metrics.seen(s.name, tenants.InventoryOf(view.Services), plan)
	drop := &giving{session: s, connection: c, cluster: cluster, metallb: metallb, stored: stored, blocks: blocks}
	err = errors.Join(
		s.sync(ctx, c, cluster, plan.Addresses),
		s.clocks(ctx, stored, plan),
		s.grow(ctx, cluster, t, p, stored, pools, plan, view.Partial),
		drop.back(ctx, plan.Release),
		drop.failed(ctx, plan.Discard),
		s.mark(ctx, c),
	)
	return plan.Next, err
}

// familiesOf is of which IP families the tenant has addresses, or could get some.
func familiesOf(blocks []tenants.Block, p tenants.Policy, pools map[string]*v1alpha1.NetworkPool) []corev1.IPFamily {
	var addresses []netip.Addr
	for _, b := range blocks {
		addresses = append(addresses, b.Range.First)
	}
	if p.Elastic {
		for _, name := range tenants.PoolsFor(p, pools) {
			if prefix, err := netip.ParsePrefix(pools[name].Spec.CIDR); err == nil {
				addresses = append(addresses, prefix.Addr())
			}
		}
	}
	var families []corev1.IPFamily
	for _, a := range addresses {
		family := corev1.IPv6Protocol
		if a.Is4() {
			family = corev1.IPv4Protocol
		}
		if a.IsValid() && !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	return families
}

// waiting is what is remembered of a Service.
type waiting struct {
	served bool      // it has an address
	since  time.Time // else since when it has none
}

// view is what decisions are made on.
func (s *session) view(c *connection, metallb tenants.MetalLB, blocks []tenants.Block) tenants.View {
	now := s.Now()
	v := tenants.View{Partial: c.services.partial.Load()}
	refused := c.refusedAt()
	known := map[types.UID]*waiting{}
	for _, o := range c.services.List() {
		service, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		w := s.services[service.UID]
		served := len(service.Status.LoadBalancer.Ingress) > 0
		switch {
		case w == nil:
			w = &waiting{served: served, since: earlier(service.CreationTimestamp.Time, now)}
		case w.served && !served:
			w = &waiting{since: now}
		case served:
			w = &waiting{served: true}
		}
		known[service.UID] = w
		// Events have whole seconds.
		no := refused[string(service.UID)]
		v.Services = append(v.Services, tenants.ServiceOf(service, metallb, w.since, !no.IsZero() && !no.Before(w.since.Truncate(time.Second))))
	}
	s.services = known
	past := c.uses.take()
	for i := range v.Services {
		for _, a := range v.Services[i].Has {
			delete(past, a)
		}
	}
	if len(past) > 0 {
		v.Services = append(v.Services, tenants.Service{Has: slices.Collect(maps.Keys(past))})
		s.nudge() // to look without them
	}
	if pool := c.pools.object(); pool != nil {
		v.InPool = tenants.PoolRanges(addressesOf(pool))
	}
	v.GoneSince = map[string]time.Time{}
	for _, b := range blocks {
		if !b.Range.IsValid() || slices.ContainsFunc(v.InPool, b.Range.Overlaps) {
			continue
		}
		since, known := s.gone[b.Name]
		if !known {
			since = now
		}
		v.GoneSince[b.Name] = since
	}
	s.gone = v.GoneSince
	return v
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// clocks records since when blocks are idle, so that a restart does not begin to count anew.
func (s *session) clocks(ctx context.Context, stored []v1alpha1.IPAllocation, plan tenants.Plan) error {
	var errs []error
	for i := range stored {
		start, stop := slices.Contains(plan.StartClock, stored[i].Name), slices.Contains(plan.StopClock, stored[i].Name)
		if !start && !stop {
			continue
		}
		a := stored[i].DeepCopy()
		if delete(a.Annotations, v1alpha1.AnnotationIdleSince); start {
			metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationIdleSince, s.Now().UTC().Format(time.RFC3339Nano))
		}
		err := s.client.Patch(ctx, a, client.MergeFromWithOptions(&stored[i], client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // else the informer brings it here again
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// refusal is what pools last said to a tenant that asked for more, and how they were then.
type refusal struct {
	text  string
	need  int32
	pools string
	at    time.Time
}

// askAgain is how often pools that have not changed are asked once more.
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
	got := int32(0)
	if s.refusal.text == "" && plan.Need > 0 {
		mine := map[string]bool{} // those that the plan knows of
		for i := range stored {
			mine[stored[i].Name] = true
		}
		said := ""
		var err error
		got, err = tenants.Spread(from, plan.Need, plan.Want, func(try tenants.Try) (bool, error) {
			a, fresh, no, err := s.create(ctx, t,
				func(taken func(string) bool) string {
					return tenants.GrowthName(t, func(name string) bool { return mine[name] || taken(name) })
				},
				func(name string) *v1alpha1.IPAllocation {
					return tenants.New(t, v1alpha1.TypeLoadBalancer, v1alpha1.RoleGrowth, s.Namespace, name, try.Pool, try.Count)
				})
			switch {
			case err != nil:
				return false, fmt.Errorf("%d more addresses from pool %s: %w", try.Count, try.Pool, err)
			case no != "":
				said = no
				return false, nil
			case !fresh:
				return false, errBehind
			}
			mine[a.Name] = true
			s.metrics.grown(s.name, try.Count)
			s.events.grown(c, a)
			return true, nil
		})
		if errors.Is(err, errBehind) {
			return nil // the informers bring it
		}
		if err != nil {
			return err
		}
		if got < plan.Need {
			if said == "" {
				said = "no NetworkPool exists"
			}
			s.refusal = refusal{text: said, need: plan.Need - got, pools: state.String(), at: s.Now()}
		}
	}
	s.short.put(s.name, s.refusal.text != "")
	return s.sayGrowth(ctx, p, plan, s.refusal.text, partial)
}

// errBehind says that a block is there that the informers have yet to show.
var errBehind = errors.New("the informers are behind")

// sayGrowth writes whether every Service that waits for an address can be given one.
func (s *session) sayGrowth(ctx context.Context, p tenants.Policy, plan tenants.Plan, refused string, partial bool) error {
	c := metav1.Condition{Type: v1alpha1.ConditionLoadBalancerIPsAvailable, Status: metav1.ConditionFalse}
	switch {
	case partial:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonTooManyServices
		c.Message = fmt.Sprintf("the tenant has more Services of type LoadBalancer than are looked at (%d, or %d bytes of them): the others get no addresses, "+
			"and none are given back; delete some, or raise --tenants-max-services", s.MaxServices, s.MaxServices*keptBytes)
	case plan.Short > 0:
		c.Reason = v1alpha1.ReasonQuotaExceeded
		c.Message = fmt.Sprintf("Services need %d addresses more than the quota allows (quotaPerTenant.maxLoadBalancerIPs %d): raise it, or delete Services",
			plan.Short, p.MaxLoadBalancers)
	case refused != "":
		c.Reason, c.Message = v1alpha1.ReasonPoolExhausted, "no pool has room: "+refused
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, fmt.Sprintf("%d addresses", sizeOf(plan))
	}
	return s.say(ctx, c)
}

func sizeOf(plan tenants.Plan) (n int64) {
	for _, r := range plan.Addresses {
		n = min(n+r.Size(), math.MaxInt32)
	}
	return n
}

// say writes condition LoadBalancerIPsAvailable where it differs, and tells people of what is in the way.
func (s *session) say(ctx context.Context, c metav1.Condition) error {
	cluster := &v1alpha1.TenantCluster{}
	if err := s.Get(ctx, s.name, cluster); err != nil || cluster.UID != s.uid {
		return client.IgnoreNotFound(err)
	}
	fields, changed := condition(cluster.Status.Conditions, c, s.Now())
	if !changed || s.said == c {
		return nil
	}
	if err := s.applyStatus(ctx, tenantClusterKind, cluster, ownerGrowth, map[string]any{"conditions": []any{fields}}); err != nil {
		return err
	}
	if s.said.Reason != c.Reason {
		s.events.growth(cluster, c)
	}
	s.said = c
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

func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

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
		err := g.drop(ctx, a)
		if apierrors.IsConflict(err) {
			return nil // the informer brings it here again
		}
		if err == nil {
			done(a)
		}
		return err
	}
	return nil
}
