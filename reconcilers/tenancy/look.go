package tenancy

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/overtaken"
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
	s.measure(blocks)
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

// idle is how long a block has been idle, as far as this process goes by it.
type idle struct {
	written time.Time // by the clock of the replica that recorded it
	since   time.Time // by this process's clock
}

// idleShare of ShrinkAfter is what a block has to be idle for at least under the eyes of one session, whatever an earlier one has recorded.
const idleShare = 10

// measure has the times of blocks be this process's own. A failed block counts from when it was first observed to have failed. What another replica
// recorded of an idle block counts, as its clock may have been wrong, for no less than nothing and no more than all but one idleShare of ShrinkAfter.
func (s *session) measure(blocks []tenants.Block) {
	now, failed, idles := s.Now(), map[string]time.Time{}, map[string]idle{}
	for i := range blocks {
		b := &blocks[i]
		if b.Failed {
			if b.Created = now; !s.failed[b.Name].IsZero() {
				b.Created = s.failed[b.Name]
			}
			failed[b.Name] = b.Created
		}
		if b.IdleSince.IsZero() {
			continue
		}
		known := s.idles[b.Name]
		if !known.written.Equal(b.IdleSince) {
			credit := min(max(s.Wall().Sub(b.IdleSince), 0), s.Timing.ShrinkAfter-s.Timing.ShrinkAfter/idleShare)
			known = idle{b.IdleSince, now.Add(-credit)}
		}
		idles[b.Name], b.IdleSince = known, known.since
	}
	s.failed, s.idles = failed, idles
}

// waiting is what is remembered of a Service.
type waiting struct {
	served bool      // it has an address
	since  time.Time // else since when it has none, as far as was observed
	before time.Time // refusals up to then are not of this wait, by the tenant's clock: its creation, or the last refusal known while it had an address
}

// refused tells whether the wait of a Service was refused, going by the time of the last refusal.
func (w *waiting) refused(at time.Time) bool { return !at.IsZero() && at.After(w.before) }

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
			w = &waiting{served: served, since: now, before: service.CreationTimestamp.Add(-time.Second)} // events have whole seconds
		case w.served && !served:
			w = &waiting{since: now, before: w.before}
		case served:
			w = &waiting{served: true, before: refused[string(service.UID)]}
		}
		known[service.UID] = w
		v.Services = append(v.Services, tenants.ServiceOf(service, metallb, w.since, w.refused(refused[string(service.UID)])))
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
			metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationIdleSince, s.Wall().UTC().Format(time.RFC3339Nano))
		}
		err := s.client.Patch(ctx, a, client.MergeFromWithOptions(&stored[i], client.MergeFromWithOptimisticLock{}))
		errs = append(errs, overtaken.Ignore(ctx, s.live, &stored[i], err))
	}
	return errors.Join(errs...)
}
