package butler

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Counts of an IPAllocation without count in a pool without defaults.
const (
	defaultNodesPerTenant  = 5
	defaultLBPoolPerTenant = 8
)

// ConvertPool converts a NetworkPool for the ledger. A pool that breaks a rule offers no
// addresses; the errors name the rules, and the readable part of the reserved networks
// and the releases still counts. Host bits do not matter.
func ConvertPool(p *v1alpha1.NetworkPool) (ledger.Pool, field.ErrorList) {
	read, errs := parseSpec(p)
	list := poolrecord.ReadList(p)
	pool := ledger.Pool{
		Key:               NetworkPoolKey(p.Namespace, p.Name),
		ResourceVersion:   object.ResourceVersion(p),
		RoutingDomain:     p.Spec.RoutingDomain,
		Blocked:           slices.Concat(read.blockedRanges(), parseInfrastructure(p.Status.InfrastructureAllocations)),
		Policy:            allocator.BestFit,
		Recorded:          append(parseReleases(p.Status.Releases), list.Ranges...),
		MovedListRevision: list.Revision,
		UID:               string(p.UID),
		Deleting:          p.DeletionTimestamp != nil,
		Paused:            hasAnnotation(p, annotationPaused),
		WhatIsBlocked:     func(r allocator.Range) string { return read.describeBlocked(r, p.Status.InfrastructureAllocations) },
		WhyOutside:        read.explainOutside,
	}
	if p.Spec.ReuseDelay != nil {
		pool.ReuseDelay = p.Spec.ReuseDelay.Duration
	}
	if pool.Fault = object.Summarize(errs); pool.Fault == "" {
		pool.Window = read.offeredRanges()
	} else {
		pool.Readable = slices.DeleteFunc(read.offeredRanges(), func(r allocator.Range) bool { return !r.IsValid() })
	}
	return pool, errs
}

// annotationPaused pauses an object, by Cluster API's convention, with every value.
const annotationPaused = "cluster.x-k8s.io/paused"

func hasAnnotation(p *v1alpha1.NetworkPool, name string) bool {
	_, has := p.Annotations[name]
	return has
}

// RequestedCount returns how many addresses an allocation requests: spec.count, else the
// pool's default for the type. p may be nil.
func RequestedCount(a *v1alpha1.IPAllocation, p *v1alpha1.NetworkPool) int32 {
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

// parseInfrastructure returns the addresses that the platform uses. They are blocked for
// tenants like reserved addresses.
func parseInfrastructure(platform []v1alpha1.InfrastructureAllocation) []allocator.Range {
	var used []allocator.Range
	for _, a := range platform {
		if r, err := allocator.ParseRange(a.IP); err == nil {
			used = append(used, r)
		}
	}
	return used
}

// parseReleases returns the cooldowns in the recorded releases, expired cooldowns
// included. An invalid record keeps no address from being allocated.
func parseReleases(releases []v1alpha1.Release) []ledger.RecordedRange {
	var cooldowns []ledger.RecordedRange
	for _, r := range releases {
		if r.ReusableAt == nil {
			continue
		}
		if rng, errs := fieldtext.ParseRange(nil, fieldtext.Text{Value: r.StartAddress}, fieldtext.Text{Value: r.EndAddress}); len(errs) == 0 {
			cooldowns = append(cooldowns, ledger.RecordedRange{Range: rng, Since: r.ReleasedAt.Time, Until: r.ReusableAt.Time})
		}
	}
	return cooldowns
}

// declaredRange is a range with the path of its field. The range of an invalid field is
// not valid.
type declaredRange struct {
	path *field.Path
	allocator.Range
}

// parsedSpec is the valid part of a NetworkPool's spec.
type parsedSpec struct {
	network  allocator.Range
	gateway  allocator.Range // not valid if the pool reserves no gateway
	reserved []declaredRange // one per spec.reserved
	tenants  []declaredRange // effective tenant ranges: ranges, else start and end, else none
}

func (r parsedSpec) blockedRanges() []allocator.Range {
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

// describeBlocked returns the reason for messages why a range is blocked, with the field
// that blocks the range.
func (r parsedSpec) describeBlocked(blocked allocator.Range, platform []v1alpha1.InfrastructureAllocation) string {
	if i := slices.IndexFunc(r.reserved, func(p declaredRange) bool { return p.Range == blocked }); i >= 0 {
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

// explainOutside returns why the pool does not offer a range; "" if spec.cidr does not
// contain the range.
func (r parsedSpec) explainOutside(outside allocator.Range) string {
	if r.network.Covers(outside) {
		return "inside spec.cidr, but in no range of spec.tenantAllocation"
	}
	return ""
}

func (r parsedSpec) offeredRanges() []allocator.Range {
	if len(r.tenants) == 0 {
		return []allocator.Range{r.network}
	}
	window := make([]allocator.Range, len(r.tenants))
	for i, t := range r.tenants {
		window[i] = t.Range
	}
	return window
}

// parseSpec parses a spec and checks every rule on which the meaning of the spec depends.
func parseSpec(p *v1alpha1.NetworkPool) (parsedSpec, field.ErrorList) {
	var (
		r    parsedSpec
		errs field.ErrorList
	)
	spec := field.NewPath("spec")
	cidr := fieldtext.At(spec.Child("cidr"), p.Spec.CIDR)
	if prefix, err := cidr.ParsePrefix(); err != nil {
		errs = append(errs, err)
	} else {
		r.network = allocator.RangeOfPrefix(prefix)
	}
	gateway, bad := parseGateway(p, r.network)
	r.gateway, errs = gateway, append(errs, bad...)
	for i, res := range p.Spec.Reserved {
		t := fieldtext.At(spec.Child("reserved").Index(i).Child("cidr"), res.CIDR)
		part := declaredRange{path: t.Path}
		if prefix, err := t.ParsePrefix(); err != nil {
			errs = append(errs, err)
		} else {
			part.Range = allocator.RangeOfPrefix(prefix)
		}
		r.reserved = append(r.reserved, part)
	}
	if p.Spec.TenantAllocation != nil {
		tenants, bad := parseTenantRanges(spec.Child("tenantAllocation"), p.Spec.TenantAllocation)
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

func parseTenantRanges(path *field.Path, t *v1alpha1.TenantAllocation) ([]declaredRange, field.ErrorList) {
	start, end := fieldtext.At(path.Child("start"), t.Start), fieldtext.At(path.Child("end"), t.End)
	switch {
	case t.Start != "" && t.End == "":
		return nil, field.ErrorList{field.Required(end.Path, "start and end must be set together: set both, or use ranges instead")}
	case t.Start == "" && t.End != "":
		return nil, field.ErrorList{field.Required(start.Path, "start and end must be set together: set both, or use ranges instead")}
	case len(t.Ranges) == 0 && t.Start != "":
		r, errs := fieldtext.ParseRange(path, start, end)
		return []declaredRange{{path, r}}, errs
	}
	var (
		tenants []declaredRange
		errs    field.ErrorList
	)
	for i, v := range t.Ranges {
		at := path.Child("ranges").Index(i)
		r, bad := fieldtext.ParseRange(at, fieldtext.At(at.Child("start"), v.Start), fieldtext.At(at.Child("end"), v.End))
		tenants, errs = append(tenants, declaredRange{at, r}), append(errs, bad...)
	}
	return tenants, errs
}

func (r parsedSpec) checkInside(part declaredRange) field.ErrorList {
	switch {
	case !part.IsValid() || r.network.Covers(part.Range):
		return nil
	case part.First.BitLen() != r.network.First.BitLen():
		return field.ErrorList{part.invalid("is of the other address family than spec.cidr %s: use one family in a pool", r.network.Text())}
	}
	return field.ErrorList{part.invalid("lies outside spec.cidr %s: correct it or grow spec.cidr", r.network.Text())}
}

// checkOrder requires ascending and disjoint tenant ranges. Adjacent ranges are valid.
func (r parsedSpec) checkOrder() field.ErrorList {
	var (
		errs     field.ErrorList
		previous declaredRange
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

// checkEdges denies a reserved network that covers one end of a tenant range. A reserved
// network may lie in the range, lie beside the range, or cover the whole range.
//
//	tenant range       |-----------|
//	reserved, good   |---------------|    |--|
//	reserved, good         |--|
//	reserved, bad             |------|
func (r parsedSpec) checkEdges() field.ErrorList {
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

// invalid returns an error that quotes the range in the notation of its field: a network
// as CIDR, two addresses with a dash.
func (p declaredRange) invalid(format string, args ...any) *field.Error {
	return field.Invalid(p.path, p.Text(), fmt.Sprintf(format, args...))
}
