package butler

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Counts of an IPAllocation that says none, from a pool that says none.
const (
	defaultNodesPerTenant  = 5
	defaultLBPoolPerTenant = 8
)

// PoolOf is what the ledger needs to know of a pool. Of one that breaks a rule the errors say which; it then offers nothing, while
// what is readable of its reserved networks and its releases still counts. Host bits do not matter.
func PoolOf(p *v1alpha1.NetworkPool) (ledger.Pool, field.ErrorList) {
	read, errs := readPool(p)
	resting := fields.Resting(p)
	pool := ledger.Pool{
		Key:             NetworkPoolKey(p.Namespace, p.Name),
		ResourceVersion: fields.ResourceVersion(p),
		Space:           p.Spec.RoutingDomain,
		Blocked:         slices.Concat(read.blocked(), usedBy(p.Status.InfrastructureAllocations)),
		Policy:          allocator.BestFit,
		Cooling:         append(coolingOf(p.Status.Releases), resting.Ranges...),
		Listed:          resting.Revision,
		UID:             string(p.UID),
		Deleting:        p.DeletionTimestamp != nil,
		Paused:          hasAnnotation(p, annotationPaused),
		WhatIsBlocked:   func(r allocator.Range) string { return read.whatIsBlocked(r, p.Status.InfrastructureAllocations) },
		WhyOutside:      read.whyOutside,
	}
	if p.Spec.ReuseDelay != nil {
		pool.ReuseDelay = p.Spec.ReuseDelay.Duration
	}
	if pool.Fault = fields.Fault(errs); pool.Fault == "" {
		pool.Window = read.window()
	} else {
		pool.Readable = slices.DeleteFunc(read.window(), func(r allocator.Range) bool { return !r.IsValid() })
	}
	return pool, errs
}

// annotationPaused pauses an object, by Cluster API's convention, whatever its value.
const annotationPaused = "cluster.x-k8s.io/paused"

func hasAnnotation(p *v1alpha1.NetworkPool, name string) bool {
	_, has := p.Annotations[name]
	return has
}

// CountFor is how many addresses an allocation asks for: what it says, else the pool's default for its type. p may be nil.
func CountFor(a *v1alpha1.IPAllocation, p *v1alpha1.NetworkPool) int32 {
	if a.Spec.Count != nil {
		return *a.Spec.Count
	}
	var defaults v1alpha1.AllocationDefaults
	if p != nil && p.Spec.TenantAllocation != nil && p.Spec.TenantAllocation.Defaults != nil {
		defaults = *p.Spec.TenantAllocation.Defaults
	}
	count, fallback := defaults.NodesPerTenant, int32(defaultNodesPerTenant)
	if a.Spec.Type == v1alpha1.TypeLoadBalancer {
		count, fallback = defaults.LBPoolPerTenant, defaultLBPoolPerTenant
	}
	if count < 1 {
		return fallback
	}
	return count
}

// usedBy is the addresses that the platform was seen to use. Those that tenants could be given are avoided like reserved ones.
func usedBy(platform []v1alpha1.InfrastructureAllocation) []allocator.Range {
	var used []allocator.Range
	for _, a := range platform {
		if r, err := allocator.ParseRange(a.IP); err == nil {
			used = append(used, r)
		}
	}
	return used
}

// coolingOf is the recorded releases that rest, or once did. A record that cannot be read holds nothing back.
func coolingOf(releases []v1alpha1.Release) []ledger.Cooling {
	var cooling []ledger.Cooling
	for _, r := range releases {
		if r.ReusableAt == nil {
			continue
		}
		if rng, errs := fields.Range(nil, fields.Text{Value: r.StartAddress}, fields.Text{Value: r.EndAddress}); len(errs) == 0 {
			cooling = append(cooling, ledger.Cooling{Range: rng, Since: r.ReleasedAt.Time, Until: r.ReusableAt.Time})
		}
	}
	return cooling
}

// placed is a range and where it is declared. It is not valid where it could not be read.
type placed struct {
	path *field.Path
	allocator.Range
}

// readable is what can be read of a NetworkPool's spec.
type readable struct {
	network  allocator.Range
	gateway  allocator.Range // not valid where nothing is to be kept for it
	reserved []placed        // one per spec.reserved
	tenants  []placed        // effective tenant ranges: ranges, else start and end, else none
}

func (r readable) blocked() []allocator.Range {
	var blocked []allocator.Range
	for _, res := range r.reserved {
		if res.IsValid() {
			blocked = append(blocked, res.Range)
		}
	}
	if r.gateway.IsValid() {
		blocked = append(blocked, r.gateway)
	}
	return blocked
}

// whatIsBlocked is what a blocked range is, as a message says it, with the field that blocks it.
func (r readable) whatIsBlocked(blocked allocator.Range, platform []v1alpha1.InfrastructureAllocation) string {
	if i := slices.IndexFunc(r.reserved, func(p placed) bool { return p.Range == blocked }); i >= 0 {
		return fmt.Sprintf("is reserved (%s)", r.reserved[i].path)
	}
	if r.gateway == blocked {
		return "is the gateway of the pool (spec.gateway)"
	}
	for _, a := range platform {
		if used, err := allocator.ParseRange(a.IP); err == nil && used == blocked {
			return fmt.Sprintf("is used by the platform (status.infrastructureAllocations, source %s)", a.Source)
		}
	}
	return ""
}

// whyOutside is why the pool leaves a range out, "" where spec.cidr does not contain it.
func (r readable) whyOutside(outside allocator.Range) string {
	if r.network.Covers(outside) {
		return "inside spec.cidr, but in no range of spec.tenantAllocation"
	}
	return ""
}

func (r readable) window() []allocator.Range {
	if len(r.tenants) == 0 {
		return []allocator.Range{r.network}
	}
	window := make([]allocator.Range, len(r.tenants))
	for i, t := range r.tenants {
		window[i] = t.Range
	}
	return window
}

// readPool reads a spec and checks all that must hold for it to have a meaning.
func readPool(p *v1alpha1.NetworkPool) (readable, field.ErrorList) {
	var (
		r    readable
		errs field.ErrorList
	)
	spec := field.NewPath("spec")
	cidr := fields.At(spec.Child("cidr"), p.Spec.CIDR)
	if prefix, err := cidr.Prefix(); err != nil {
		errs = append(errs, err)
	} else {
		r.network = allocator.RangeOfPrefix(prefix)
	}
	gateway, bad := readGateway(p, r.network)
	r.gateway, errs = gateway, append(errs, bad...)
	for i, res := range p.Spec.Reserved {
		t := fields.At(spec.Child("reserved").Index(i).Child("cidr"), res.CIDR)
		part := placed{path: t.Path}
		if prefix, err := t.Prefix(); err != nil {
			errs = append(errs, err)
		} else {
			part.Range = allocator.RangeOfPrefix(prefix)
		}
		r.reserved = append(r.reserved, part)
	}
	if p.Spec.TenantAllocation != nil {
		tenants, bad := readTenants(spec.Child("tenantAllocation"), p.Spec.TenantAllocation)
		r.tenants, errs = tenants, append(errs, bad...)
	}
	if !r.network.IsValid() {
		return r, errs
	}
	for _, part := range slices.Concat(r.reserved, r.tenants) {
		errs = append(errs, r.checkInside(part)...)
	}
	return r, append(append(errs, r.checkOrder()...), r.checkEdges()...)
}

func readTenants(path *field.Path, t *v1alpha1.TenantAllocation) ([]placed, field.ErrorList) {
	start, end := fields.At(path.Child("start"), t.Start), fields.At(path.Child("end"), t.End)
	switch {
	case t.Start != "" && t.End == "":
		return nil, field.ErrorList{field.Required(end.Path, "start and end must be set together: set both, or use ranges instead")}
	case t.Start == "" && t.End != "":
		return nil, field.ErrorList{field.Required(start.Path, "start and end must be set together: set both, or use ranges instead")}
	case len(t.Ranges) == 0 && t.Start != "":
		r, errs := fields.Range(path, start, end)
		return []placed{{path, r}}, errs
	}
	var (
		tenants []placed
		errs    field.ErrorList
	)
	for i, v := range t.Ranges {
		at := path.Child("ranges").Index(i)
		r, bad := fields.Range(at, fields.At(at.Child("start"), v.Start), fields.At(at.Child("end"), v.End))
		tenants, errs = append(tenants, placed{at, r}), append(errs, bad...)
	}
	return tenants, errs
}

func (r readable) checkInside(part placed) field.ErrorList {
	switch {
	case !part.IsValid() || r.network.Covers(part.Range):
		return nil
	case part.First.BitLen() != r.network.First.BitLen():
		return field.ErrorList{part.invalid("is of the other address family than spec.cidr %s: use one family in a pool", r.network.Text())}
	}
	return field.ErrorList{part.invalid("lies outside spec.cidr %s: correct it or grow spec.cidr", r.network.Text())}
}

// checkOrder wants the tenant ranges ascending and disjoint. They may touch.
func (r readable) checkOrder() field.ErrorList {
	var (
		errs     field.ErrorList
		previous placed
	)
	for _, t := range r.tenants {
		switch {
		case !t.IsValid():
			continue
		case !previous.IsValid() || previous.Last.Less(t.First):
		case t.Overlaps(previous.Range):
			errs = append(errs, t.invalid("overlaps %s (%s): make them one range, or two that share no address", previous.path, previous))
		default:
			errs = append(errs, t.invalid("must come before %s (%s): list ranges in ascending order", previous.path, previous))
		}
		previous = t
	}
	return errs
}

// checkEdges wants no reserved network to take one end of a tenant range: it may lie in the range, beside it, or cover it whole.
//
//	tenant range       |-----------|
//	reserved, good   |---------------|    |--|
//	reserved, good         |--|
//	reserved, bad             |------|
func (r readable) checkEdges() field.ErrorList {
	var errs field.ErrorList
	for _, res := range r.reserved {
		for _, t := range r.tenants {
			if res.Overlaps(t.Range) && !t.Covers(res.Range) && !res.Covers(t.Range) {
				errs = append(errs, res.invalid("reaches over an edge of %s (%s): reserve networks that lie inside the range or beside it", t.path, t))
			}
		}
	}
	return errs
}

// invalid quotes the range as its kind of field is written: a network as CIDR, two addresses with a dash.
func (p placed) invalid(format string, args ...any) *field.Error {
	return field.Invalid(p.path, p.Text(), fmt.Sprintf(format, args...))
}
