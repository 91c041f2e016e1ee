package report

import (
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// StateNotOffered is the state of free addresses outside every pool.
const StateNotOffered = "not offered"

// Segment is a run of addresses with one state and one owner.
type Segment struct {
	Range         string     `json:"range"`
	First         string     `json:"first"`
	Last          string     `json:"last"`
	Size          int64      `json:"size"` // number of addresses; saturates at the largest int64
	Digits        Digits     `json:"exact,omitempty"`
	RoutingDomain string     `json:"routingDomain,omitempty"`
	State         string     `json:"state"`
	Owner         *Object    `json:"owner,omitempty"`
	Tenant        string     `json:"tenant,omitempty"`
	Purpose       string     `json:"purpose,omitempty"`
	Deleting      bool       `json:"deleting,omitempty"` // the owner is being deleted
	Since         *time.Time `json:"since,omitempty"`    // time of the allocation, or start of the cooldown
	Until         *time.Time `json:"until,omitempty"`    // end of the cooldown
	Rivals        []*Object  `json:"rivals,omitempty"`
	// OwnerPool is the pool of the owner, if the pool does not offer the addresses. Pools
	// are those that do.
	OwnerPool   *OwnerPool `json:"ownerPool,omitempty"`
	Pools       []*Object  `json:"pools,omitempty"`
	ReservedBy  *Object    `json:"reservedBy,omitempty"`
	Reservation string     `json:"reservation,omitempty"`
	Releases    []Release  `json:"releases,omitempty"`

	Exact    allocator.Range `json:"-"`
	OwnerKey inventory.Key   `json:"-"` // distinguishes owners without a name
}

// OwnerPool is the pool of an owner whose addresses it does not offer.
type OwnerPool struct {
	Object
	Missing bool `json:"missing,omitempty"` // the pool does not exist
}

// String returns "NetworkPool ns/pool, which does not exist", or "…, which does not offer
// it".
func (p *OwnerPool) String() string {
	if p.Missing {
		return p.Object.String() + ", which does not exist"
	}
	return p.Object.String() + ", which does not offer it"
}

// newOwnerPool returns the pool of a claim that does not offer the addresses of a run of
// the claim; nil if it offers them.
func newOwnerPool(i *inventory.Inventory, c *inventory.Claim, r allocator.Range) *OwnerPool {
	e := i.FindNotOffered(c)
	if e == nil || len(e.Ranges) > 0 && !slices.ContainsFunc(e.Ranges, r.Overlaps) {
		return nil
	}
	return &OwnerPool{*NewObject(c.Pool), e.PoolMissing()}
}

// Release is a release that the status of a NetworkPool records.
type Release struct {
	Claim       string     `json:"claim"`
	Tenant      string     `json:"tenant"`
	Range       string     `json:"range"`
	AllocatedAt *time.Time `json:"allocatedAt,omitempty"`
	ReleasedAt  time.Time  `json:"releasedAt"`
	ReusableAt  *time.Time `json:"reusableAt,omitempty"`
}

// NewRelease returns a recorded release.
func NewRelease(r inventory.Release) Release {
	return Release{r.Claim, r.Tenant, r.Range.String(), OptionalTime(r.AllocatedAt), r.ReleasedAt.UTC().Truncate(time.Second), OptionalTime(r.ReusableAt)}
}

// NewSegment returns a run of addresses of a routing domain.
func NewSegment(i *inventory.Inventory, domain string, g state.Segment) Segment {
	item := Segment{
		Range: g.Range.String(), First: g.Range.First.String(), Last: g.Range.Last.String(), Size: g.Range.Size(), RoutingDomain: domain, State: string(g.State),
		Owner: NewObject(i.ReleaserOf(g)), Until: OptionalTime(g.Until), Since: OptionalTime(g.Since), Rivals: newObjects(g.Rivals), Exact: g.Range, OwnerKey: g.Owner,
		Digits: DigitsOf("size", g.Range),
	}
	if c := i.Claim(g.Owner); c != nil {
		item.Tenant, item.Purpose = c.Tenant, string(c.Purpose)
		if g.State == state.SegmentOwned {
			item.Since, item.Deleting = OptionalTime(c.Since), c.State == inventory.ClaimDeleting
		}
	}
	return item
}

// newAnswer returns a run of addresses with the pools, the reservation and the releases
// of the run.
func newAnswer(i *inventory.Inventory, answer inventory.Answer) Segment {
	item := NewSegment(i, answer.Domain, answer.Segment)
	for _, p := range answer.Pools {
		item.Pools = append(item.Pools, NewObject(p.Key))
	}
	if answer.ReservedBy != nil {
		item.ReservedBy, item.Reservation = NewObject(answer.ReservedBy.Key), answer.Reservation
	}
	if item.State == string(state.SegmentFree) && len(item.Pools) == 0 {
		item.State = StateNotOffered
	}
	if c := i.Claim(answer.Segment.Owner); c != nil && answer.Segment.State == state.SegmentOwned {
		item.OwnerPool = newOwnerPool(i, c, answer.Segment.Range)
	}
	for _, r := range answer.Releases {
		item.Releases = append(item.Releases, NewRelease(r))
	}
	return item
}

// Who returns the runs of a range in a routing domain, with owners, pools and releases.
func Who(i *inventory.Inventory, domain string, r allocator.Range) (items []Segment) {
	for _, answer := range i.Who(domain, r) {
		items = append(items, newAnswer(i, answer))
	}
	return items
}

// WhoAnywhere returns the runs of a range in each selected routing domain. Domains in
// which every address of the range has the state StateNotOffered are omitted. A nil
// inDomain selects each routing domain.
func WhoAnywhere(i *inventory.Inventory, r allocator.Range, inDomain func(string) bool) (items []Segment) {
	known := func(s Segment) bool { return s.State != StateNotOffered }
	for _, domain := range i.Domains() {
		if inDomain != nil && !inDomain(domain) {
			continue
		}
		if found := Who(i, domain, r); slices.ContainsFunc(found, known) {
			items = append(items, found...)
		}
	}
	return items
}

// Summary returns the state and the owner of a run in words.
func (s Segment) Summary() string {
	switch state.SegmentState(s.State) {
	case state.SegmentOwned:
		if inventory.IsAnonymous(s.OwnerKey) {
			return "owned by an object that you may not list"
		}
		if s.Deleting {
			return "owned by " + s.Owner.String() + ", which is being deleted"
		}
		return "owned by " + s.Owner.String()
	case state.SegmentGranted:
		if s.Owner == nil || s.Owner.Name == "" {
			return "granted to a claim that is not stored yet: free within two minutes if its create has failed"
		}
		return "granted to " + s.Owner.String()
	case state.SegmentCooldown:
		text := "in cooldown"
		if s.Until != nil {
			text += " until " + s.Until.Format(time.RFC3339)
		}
		return text
	case state.SegmentMoved:
		return "moved to another cluster with " + s.Owner.String()
	case state.SegmentWithheld:
		return "withheld by an update of " + s.Owner.String()
	}
	return s.State
}

// CSVValue returns the cell of a run in CSV for a column of SegmentColumns. Sizes are
// decimal numbers, because programs read CSV.
func CSVValue(c Column[Segment], s Segment) string {
	if c.Name == columnSize {
		return allocator.DecimalOf(s.Exact)
	}
	return c.Value(s)
}

const columnSize = "SIZE"

// SegmentColumns returns the columns of a table of runs of addresses. With domains, the
// column DOMAIN is in every table, otherwise only in wide tables.
func SegmentColumns(domains bool) []Column[Segment] {
	return []Column[Segment]{
		{"RANGE", false, func(s Segment) string { return s.Exact.String() }},
		{columnSize, false, func(s Segment) string { return allocator.AmountOf(s.Exact) }},
		{"DOMAIN", !domains, func(s Segment) string { return s.RoutingDomain }},
		{"STATE", false, func(s Segment) string {
			if len(s.Rivals) > 0 {
				return "conflict"
			}
			return s.State
		}},
		{"OWNER", false, func(s Segment) string { return s.Owner.String() }},
		{"TENANT", false, func(s Segment) string { return s.Tenant }},
		{"PURPOSE", true, func(s Segment) string { return s.Purpose }},
		{"SINCE", true, func(s Segment) string { return TimeText(s.Since) }},
		{"UNTIL", false, func(s Segment) string { return TimeText(s.Until) }},
	}
}
