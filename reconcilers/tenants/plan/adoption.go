package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Adoption is a range that the MetalLB or a Service of a tenant uses without an
// allocation, and that a pool of the policy offers.
type Adoption struct {
	Pool  string
	Range allocator.Range
	InUse []allocator.Range // the parts that Services use
}

// Obstacle is why addresses are not allocated: reason and message of a condition.
type Obstacle struct{ Reason, Message string }

// maxAdoptions bounds the initial blocks for load balancers that a tenant gets by
// adoption.
const maxAdoptions = 64

// FindAdoptions returns the ranges to allocate to a tenant because its MetalLB pools
// offer them, or its Services have them. The result has one range per source, so that no
// block reaches over two MetalLB pools. Addresses outside of the policy's pools, and
// reserved addresses, are no adoptions. With too little room in the quota only the parts
// in use are adopted, while the quota has room; the obstacles name the others.
func FindAdoptions(p Policy, blocks []Block, v View, pools map[string]*v1alpha1.NetworkPool) ([]Adoption, []Obstacle) {
	var known []allocator.Range
	initial := 0
	for _, b := range blocks {
		if b.Kind == v1alpha1.TypeLoadBalancer && b.Range.IsValid() {
			known = append(known, b.Range)
			initial += boolToInt(!b.Growth)
		}
	}
	inUse := v.assigned()
	var found []Adoption
	for _, source := range [][]allocator.Range{v.InPool, v.OtherPools, inUse} {
		for _, part := range splitByPool(allocator.Union(source), known, p, pools) {
			part.InUse = intersect([]allocator.Range{part.Range}, inUse)
			found = append(found, part)
			known = append(known, part.Range)
		}
	}
	room := p.MaxLoadBalancers - quotaUsed(blocks, v1alpha1.TypeLoadBalancer)
	if countAddresses(found) > int64(room) {
		found = onlyInUse(found)
	}
	for i, a := range found {
		switch size := a.Range.Size(); {
		case size > int64(room):
			return found[:i], []Obstacle{{v1alpha1.ReasonQuotaExceeded, fmt.Sprintf(
				"%s in use and more than the quota allows (quotaPerTenant.maxLoadBalancerIPs %d): raise the quota, or delete Services",
				areOrIs(rangesOf(found[i:])), p.MaxLoadBalancers)}}
		case initial+i >= maxAdoptions:
			return found[:i], []Obstacle{{v1alpha1.ReasonAllocationFailed, fmt.Sprintf(
				"%s in use, and the tenant has %d IPAllocations already, the limit: create IPAllocations of type loadbalancer with spec.pinnedRange for this TenantCluster",
				areOrIs(rangesOf(found[i:])), maxAdoptions)}}
		default:
			room -= int32(size)
		}
	}
	return found, nil
}

// NewAdoption returns the allocation to create for a part of an adoption.
func NewAdoption(t Tenant, namespace, name, pool string, part allocator.Range) *v1alpha1.IPAllocation {
	a := NewAllocation(t, v1alpha1.TypeLoadBalancer, v1alpha1.RoleInitial, namespace, name, pool, 0)
	a.Spec.PinnedRange = butler.FormatPinnedRange(part)
	return a
}

// maxAdoptionRequests bounds the requests for one adoption.
const maxAdoptionRequests = 64

// AdoptParts requests the range of an adoption. If it is denied, the parts in use are
// requested, and the halves of each denied part, down to single addresses: what a Service
// uses becomes the tenant's as far as possible. The denied parts that are not divided
// further are returned. allocate returns false for a denial; an error ends the requests.
func AdoptParts(a Adoption, allocate func(allocator.Range) (bool, error)) (denied []allocator.Range, err error) {
	if allocated, err := allocate(a.Range); allocated || err != nil {
		return nil, err
	}
	if len(a.InUse) == 0 {
		return []allocator.Range{a.Range}, nil
	}
	pending := slices.Clone(a.InUse)
	for requests := 1; len(pending) > 0; requests++ {
		r := pending[0]
		pending = pending[1:]
		allocated, err := false, error(nil)
		if r != a.Range {
			allocated, err = allocate(r)
		}
		switch {
		case err != nil:
			return denied, err
		case allocated:
		case r.First == r.Last || requests+len(pending)+2 > maxAdoptionRequests:
			denied = append(denied, r)
		default:
			middle, _ := r.At((r.Size() - 1) / 2)
			pending = append([]allocator.Range{{First: r.First, Last: middle}, {First: middle.Next(), Last: r.Last}}, pending...)
		}
	}
	return denied, nil
}

// splitByPool returns the parts of ranges that a pool of the policy offers, in the order
// of the ranges; known ranges excluded. Of several pools that offer an address, the first
// by the order of the policy counts.
func splitByPool(ranges, known []allocator.Range, p Policy, pools map[string]*v1alpha1.NetworkPool) (parts []Adoption) {
	known = slices.Clone(known)
	for _, r := range ranges {
		for _, name := range UsablePools(p, pools) {
			for _, offered := range offeredBy(pools[name]) {
				for _, part := range allocator.Subtract(intersect([]allocator.Range{r}, []allocator.Range{offered}), known) {
					parts = append(parts, Adoption{Pool: name, Range: part})
					known = append(known, part)
				}
			}
		}
	}
	return parts
}

// offeredBy returns the ranges that a pool offers to tenants according to its spec;
// reserved addresses are excluded. A range that lies in one of them can be pinned.
func offeredBy(pool *v1alpha1.NetworkPool) (offered []allocator.Range) {
	declared := pool.DeepCopy()
	declared.Status = v1alpha1.NetworkPoolStatus{}
	converted, _ := butler.ConvertPool(declared)
	for _, r := range converted.Window {
		offered = append(offered, allocator.Subtract([]allocator.Range{r}, converted.Blocked)...)
	}
	return offered
}

// poolsOffering returns the pools of a policy that offer a whole range, in order.
func poolsOffering(r allocator.Range, p Policy, pools map[string]*v1alpha1.NetworkPool) (names []string) {
	for _, name := range UsablePools(p, pools) {
		if slices.ContainsFunc(offeredBy(pools[name]), func(o allocator.Range) bool { return o.Covers(r) }) {
			names = append(names, name)
		}
	}
	return names
}

// WithoutManaged returns the tenant without ManualRange if a pool of the policy offers an
// address of the range: such an address needs an allocation.
func (t Tenant) WithoutManaged(p Policy, pools map[string]*v1alpha1.NetworkPool) Tenant {
	if len(splitByPool([]allocator.Range{t.ManualRange}, nil, p, pools)) > 0 {
		t.ManualRange = allocator.Range{}
	}
	return t
}

// Promised is a range that a TenantCluster names, and that is about to be allocated to
// it.
type Promised struct {
	Tenant string // namespace/name
	Range  allocator.Range
}

// FindPromised returns the range that a tenant is about to get because its TenantCluster
// names it.
func FindPromised(t Tenant, missing []MissingBlock) (Promised, bool) {
	pinned := slices.ContainsFunc(missing, func(m MissingBlock) bool { return m.Pinned != nil && m.Obstacle.Reason == "" })
	return Promised{t.Namespace + "/" + t.Name, t.ManualRange}, pinned
}

// ExplainPromised returns that a pool offers a promised range, to complete the text of
// Delay; "" if it offers none.
func ExplainPromised(pool *v1alpha1.NetworkPool, promised []Promised) string {
	offered := offeredBy(pool)
	for _, p := range promised {
		if slices.ContainsFunc(offered, p.Range.Overlaps) {
			return fmt.Sprintf("TenantCluster %s has %s, which its spec.networking.loadBalancerPool names", p.Tenant, p.Range)
		}
	}
	return ""
}

// NeedsAdoption reports whether one of the missing blocks depends on what the tenant uses
// already: any addresses for load balancers.
func NeedsAdoption(missing []MissingBlock) bool {
	return slices.ContainsFunc(missing, MissingBlock.needsAdoption)
}

func (m MissingBlock) needsAdoption() bool {
	return m.Kind == v1alpha1.TypeLoadBalancer && m.takesAny()
}

// AfterAdoption returns missing blocks in which the obstacle of a block that needs
// adoption is that the tenant has not been read.
func AfterAdoption(missing []MissingBlock) []MissingBlock {
	missing = slices.Clone(missing)
	for i := range missing {
		if missing[i].needsAdoption() {
			missing[i].Obstacle = Obstacle{v1alpha1.ReasonReconciling, "addresses for loadbalancer are allocated when the tenant's API server has answered: " +
				"addresses that its Services use are adopted first"}
		}
	}
	return missing
}

// AdoptionCondition returns condition AddressesAdopted of a TenantCluster. The decision
// is based on the view; obstacles prevent adoptions.
func AdoptionCondition(blocks []Block, v View, d Decision, obstacles []Obstacle) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAddressesAdopted, Status: metav1.ConditionFalse}
	var texts []string
	for _, o := range obstacles {
		texts = append(texts, o.Message)
	}
	if more := len(texts) - maxRefusals; more > 0 {
		texts = append(texts[:maxRefusals], allocator.Counted(more, "more obstacle"))
	}
	switch notReady := slices.IndexFunc(blocks, isAwaited); {
	case len(obstacles) > 0:
		c.Reason, c.Message = obstacles[0].Reason, strings.Join(texts, "; ")
	case d.KeepPool && notReady >= 0:
		c.Reason, c.Message = v1alpha1.ReasonReconciling, fmt.Sprintf("IPAllocation %s is not ready yet", blocks[notReady].Name)
	case d.KeepPool && v.Partial:
		c.Reason, c.Message = v1alpha1.ReasonTooManyServices, "the tenant has more Services than are read: delete Services, or raise --tenants-max-services"
	case d.KeepPool:
		c.Reason = v1alpha1.ReasonNotOffered
		c.Message = fmt.Sprintf("%s in use, and no NetworkPool of the ProviderConfig offers the %s to tenants: add such a NetworkPool to spec.network.poolRefs, "+
			"move the range to an IPAddressPool of another name, or give the Services other addresses",
			areOrIs(d.Lost), allocator.Plural(allocator.Total(d.Lost), "address"))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonAdopted, "no address is in use without an IPAllocation of the tenant"
		return c
	}
	if d.KeepPool {
		c.Message += fmt.Sprintf("; IPAddressPool %s stays as it is meanwhile, because Services use it", MetalLBPool)
	}
	return c
}

// isAwaited reports whether a block for load balancers will become usable by itself.
func isAwaited(b Block) bool {
	return b.Kind == v1alpha1.TypeLoadBalancer && !b.isUsable() && !b.Failed && !b.Deleting
}

// assigned returns the addresses in the status of Services, as ranges.
func (v View) assigned() []allocator.Range {
	var addresses []allocator.Range
	for _, s := range v.Services {
		for _, a := range s.Addresses {
			addresses = append(addresses, allocator.Range{First: a, Last: a})
		}
	}
	return allocator.Union(addresses)
}

// intersect returns the addresses that two lists of ranges have in common, merged.
func intersect(a, b []allocator.Range) []allocator.Range {
	return allocator.Subtract(a, allocator.Subtract(a, b))
}

func onlyInUse(adoptions []Adoption) (parts []Adoption) {
	for _, a := range adoptions {
		for _, r := range a.InUse {
			parts = append(parts, Adoption{a.Pool, r, []allocator.Range{r}})
		}
	}
	return parts
}

func rangesOf(adoptions []Adoption) (ranges []allocator.Range) {
	for _, a := range adoptions {
		ranges = append(ranges, a.Range)
	}
	return ranges
}

func countAddresses(adoptions []Adoption) int64 { return allocator.Total(rangesOf(adoptions)) }

// maxNamedRanges bounds the ranges that a message names.
const maxNamedRanges = 8

// areOrIs returns the ranges as the subject of a sentence, and its verb: "10.0.0.1 is",
// "10.0.0.1, 10.0.0.4-10.0.0.7 are".
func areOrIs(ranges []allocator.Range) string {
	var texts []string
	for _, r := range ranges[:min(len(ranges), maxNamedRanges)] {
		texts = append(texts, r.String())
	}
	if more := len(ranges) - len(texts); more > 0 {
		texts = append(texts, allocator.Counted(more, "more range"))
	}
	return strings.Join(texts, ", ") + " " + allocator.Agree(allocator.Total(ranges), "is", "are")
}

// servesElsewhere reports whether another MetalLB pool, or another load balancer, serves
// addresses of a block: default-pool must not offer the block.
func (v View) servesElsewhere(b Block) bool {
	return slices.ContainsFunc(v.OtherPools, b.Range.Overlaps) ||
		slices.ContainsFunc(v.Services, func(s Service) bool {
			return s.OtherClass && slices.ContainsFunc(s.Addresses, func(a netip.Addr) bool { return b.Range.Contains(a) })
		})
}
