package inventory

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Release is a release in the status of a NetworkPool. The status lists the newest releases.
type Release struct {
	Pool                   Key
	Claim                  string // namespace/name of the IPAllocation
	Tenant                 string // namespace/name
	Range                  allocator.Range
	AllocatedAt            time.Time // zero if not known
	ReleasedAt, ReusableAt time.Time
}

// Releases lists the recorded releases of a routing domain that overlap a range, newest first.
func (i *Inventory) Releases(domain string, r allocator.Range) (list []Release) {
	for _, p := range i.pools {
		pool, ok := p.Object.(*butlerv1.NetworkPool)
		if !ok || p.Domain != domain {
			continue
		}
		for _, released := range pool.Status.Releases {
			ranges, err := allocator.ParseRange(released.StartAddress + "-" + released.EndAddress)
			if err != nil || !ranges.Overlaps(r) {
				continue
			}
			list = append(list, Release{
				Pool: p.Key, Claim: pool.Namespace + "/" + released.Name, Tenant: released.Tenant.Namespace + "/" + released.Tenant.Name, Range: ranges,
				AllocatedAt: ptr.Deref(released.AllocatedAt, metav1.Time{}).Time, ReleasedAt: released.ReleasedAt.Time,
				ReusableAt: ptr.Deref(released.ReusableAt, metav1.Time{}).Time,
			})
		}
	}
	slices.SortFunc(list, func(x, y Release) int {
		return cmp.Or(y.ReleasedAt.Compare(x.ReleasedAt), cmp.Compare(x.Claim, y.Claim))
	})
	return list
}

// Answer describes a run of addresses of a routing domain.
type Answer struct {
	Domain  string
	Segment state.Segment
	Pools   []*Pool // pools that offer an address of the segment
	// ReservedBy is the first pool that blocks an address of the segment, and Reservation describes the blocking field; nil and "" if no pool blocks an
	// address. Owned addresses may be blocked too.
	ReservedBy  *Pool
	Reservation string
	Releases    []Release
}

// Who returns an Answer for each segment of a range in a routing domain, in address order.
func (i *Inventory) Who(domain string, r allocator.Range) (answers []Answer) {
	for _, g := range i.Segments(domain, []allocator.Range{r}) {
		a := Answer{Domain: domain, Segment: g, Pools: i.PoolsOffering(domain, g.Range), Releases: i.Releases(domain, g.Range)}
		a.ReservedBy, a.Reservation = i.Blocking(domain, g.Range)
		answers = append(answers, a)
	}
	return answers
}
