package session

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/remote"
)

// observations are the times at which a session observed the state of Services and
// blocks. All are times of Deps.Now.
type observations struct {
	services     map[types.UID]*serviceWait
	missingSince map[string]time.Time  // block -> begin of the absence of the range from the tenant's pool; reset with each connection
	failedSince  map[string]time.Time  // block -> first observation of the failure
	idle         map[string]idlePeriod // block -> idle time
}

// serviceWait is the observed state of one Service.
type serviceWait struct {
	served bool      // the Service has an address
	since  time.Time // first observation without an address
	// refusedAfter separates refusals of this wait from earlier ones, by the tenant's
	// clock: the creation of the Service, or the last refusal known while the Service had
	// an address.
	refusedAfter time.Time
}

// isRefused reports whether a refusal at that time, zero for no refusal, belongs to this
// wait.
func (w *serviceWait) isRefused(at time.Time) bool { return !at.IsZero() && at.After(w.refusedAfter) }

// updateWait returns the state of a Service given the state before, nil for a new
// Service, and the time of MetalLB's last refusal.
func updateWait(before *serviceWait, service *corev1.Service, refusedAt, now time.Time) *serviceWait {
	served := len(service.Status.LoadBalancer.Ingress) > 0
	switch {
	case before == nil:
		return &serviceWait{served: served, since: now, refusedAfter: service.CreationTimestamp.Add(-time.Second)} // times of events are whole seconds
	case before.served && !served:
		return &serviceWait{since: now, refusedAfter: before.refusedAfter}
	case served:
		return &serviceWait{served: true, refusedAfter: refusedAt}
	}
	return before
}

// observeTenant returns the view that a decision is based on.
func (s *session) observeTenant(c *remote.Connection, metallb plan.MetalLB, blocks []plan.Block) plan.View {
	now := s.Now()
	refusedAt := c.RefusalTimes() // before the Services: a refusal known while a Service had an address must not be of a later wait
	services, partial := c.Services()
	v := plan.View{Partial: partial}
	waits := map[types.UID]*serviceWait{}
	for _, service := range services {
		at := refusedAt[string(service.UID)]
		w := updateWait(s.observed.services[service.UID], service, at, now)
		waits[service.UID] = w
		v.Services = append(v.Services, plan.ServiceOf(service, metallb, w.since, w.isRefused(at)))
	}
	s.observed.services = waits
	s.addRecentAddresses(&v, c.TakeRecentAddresses())
	if pool := c.Pool(); pool != nil {
		v.InPool = plan.ParsePoolEntries(remote.PoolEntries(pool))
	}
	v.OtherPools = c.OtherRanges()
	v.MissingSince = map[string]time.Time{}
	for _, b := range blocks {
		if !b.Range.IsValid() || slices.ContainsFunc(v.InPool, b.Range.Overlaps) {
			continue
		}
		since, known := s.observed.missingSince[b.Name]
		if !known {
			since = now
		}
		v.MissingSince[b.Name] = since
	}
	s.observed.missingSince = v.MissingSince
	return v
}

// addRecentAddresses adds the addresses that Services have lost since the last decision.
// Lost addresses count as used in this decision; the next decision follows without delay
// and no longer includes lost addresses.
func (s *session) addRecentAddresses(v *plan.View, recent map[netip.Addr]bool) {
	for i := range v.Services {
		for _, a := range v.Services[i].Addresses {
			delete(recent, a)
		}
	}
	if len(recent) > 0 {
		v.Services = append(v.Services, plan.Service{Addresses: slices.Collect(maps.Keys(recent))})
		s.trigger()
	}
}

// idlePeriod is the time for which a block has been idle.
type idlePeriod struct {
	recorded time.Time // annotation idle-since, by the clock of the replica that wrote it
	since    time.Time // by Deps.Now
}

// ownIdleShare is the part of ShrinkAfter, 1/10, that the session must observe itself,
// regardless of earlier records.
const ownIdleShare = 10

// useOwnClock replaces the times in blocks by times of Deps.Now:
//
//	Created     of a failed block: when the failure was first observed
//	IdleSince   the recorded idle time counts, but at least 0 and at most 9/10 of ShrinkAfter, because the recording clock may have been wrong
func (s *session) useOwnClock(blocks []plan.Block) {
	now, failedSince, idle := s.Now(), map[string]time.Time{}, map[string]idlePeriod{}
	for i := range blocks {
		b := &blocks[i]
		if b.Failed {
			if b.Created = now; !s.observed.failedSince[b.Name].IsZero() {
				b.Created = s.observed.failedSince[b.Name]
			}
			failedSince[b.Name] = b.Created
		}
		if b.IdleSince.IsZero() {
			continue
		}
		period := s.observed.idle[b.Name]
		if !period.recorded.Equal(b.IdleSince) {
			credit := min(max(s.Wall().Sub(b.IdleSince), 0), s.Timing.ShrinkAfter-s.Timing.ShrinkAfter/ownIdleShare)
			period = idlePeriod{b.IdleSince, now.Add(-credit)}
		}
		idle[b.Name], b.IdleSince = period, period.since
	}
	s.observed.failedSince, s.observed.idle = failedSince, idle
}

// offeredFamilies returns the IP families of the tenant's blocks and, for an elastic
// tenant, of the pools that growth may come from.
func offeredFamilies(blocks []plan.Block, p plan.Policy, pools map[string]*v1alpha1.NetworkPool) []corev1.IPFamily {
	var addresses []netip.Addr
	for _, b := range blocks {
		addresses = append(addresses, b.Range.First)
	}
	if p.Elastic {
		for _, name := range plan.UsablePools(p, pools) {
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
