package report

import (
	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Pool is a pool with numbers of addresses. The numbers saturate at the largest int64.
type Pool struct {
	Object
	RoutingDomain string   `json:"routingDomain,omitempty"`
	Ranges        []string `json:"ranges"`
	Size          int64    `json:"size"`
	Free          int64    `json:"free"`
	Allocated     int64    `json:"allocated"`
	Granted       int64    `json:"granted"` // addresses of open grants
	LargestFree   int64    `json:"largestFree"`
	FreeRuns      int      `json:"freeRuns"`
	Fragmentation int32    `json:"fragmentationPercent"`
	Digits        Digits   `json:"exact,omitempty"`
	Claims        int      `json:"claims"`
	Notes         []string `json:"notes,omitempty"`
	// StatusFree is the number of free addresses in the status of the pool, if it is less
	// than Free because claims were not read.
	StatusFree *int64 `json:"statusFree,omitempty"`

	// Exact contains the numbers without saturation.
	Exact allocator.Amounts `json:"-"`
	// Percent is the allocated share of the addresses, as in the conditions of the pool.
	Percent int `json:"-"`
	// Qualified is namespace/name, or the name of a cluster-scoped pool.
	Qualified string `json:"-"`
}

// NewPool returns a pool with its numbers of addresses.
func NewPool(i *inventory.Inventory, p *inventory.Pool) Pool {
	u := i.Usage(p.Key)
	item := Pool{
		Object: *NewObject(p.Key), RoutingDomain: p.Domain, Ranges: NetworkTexts(p.Ranges), Size: u.Total, Free: u.Available, Allocated: u.Allocated,
		Granted: u.Granted, LargestFree: u.LargestFree, FreeRuns: u.FreeRuns, Fragmentation: u.Fragmentation, Claims: u.Claims, Exact: u.Exact, Notes: notesOf(i, p),
		Percent: u.Percent(), Qualified: inventory.NameOf(p.Key), Digits: digitsOfPool(i, p.Key, "size", "allocated", "free", "largestFree"),
	}
	if free, some := i.HiddenOwners(p); some {
		item.StatusFree = &free
		item.Notes = append(item.Notes, i.NoteOfHiddenOwners(p))
	}
	return item
}

// notesOf describes the faults and special states of a pool: invalid, being deleted,
// paused, manual, overlapping other pools.
func notesOf(i *inventory.Inventory, p *inventory.Pool) (notes []string) {
	switch {
	case p.Fault != "" && i.Usage(p.Key).Exact.Total == 0:
		notes = append(notes, "offers nothing: "+p.Fault)
	case p.Fault != "": // an IPPool with a fault still offers its valid ranges
		notes = append(notes, "invalid in part: "+p.Fault)
	}
	if p.Deleting {
		notes = append(notes, "is being deleted")
	}
	if pause := i.NoteOfPause(p); pause != "" {
		notes = append(notes, pause)
	}
	if p.Manual {
		notes = append(notes, "allocates only requested addresses")
	}
	if others := i.Overlapping(p); len(others) > 0 {
		names := make([]string, len(others))
		for n, other := range others {
			if names[n] = inventory.NameOf(other); other.Resource != p.Key.Resource {
				names[n] = inventory.TitleOf(other)
			}
		}
		notes = append(notes, "shares addresses with "+Listed(names, 3))
	}
	return notes
}

// AddressMap contains the addresses that a pool offers in a network.
type AddressMap struct {
	APIVersion    string           `json:"apiVersion"`
	Kind          string           `json:"kind"`
	Pool          *Object          `json:"pool"`
	RoutingDomain string           `json:"routingDomain,omitempty"`
	Network       string           `json:"network"`
	OtherNetworks []string         `json:"otherNetworks,omitempty"` // networks of the pool that the map does not show
	Totals        map[string]int64 `json:"totals"`
	Digits        Digits           `json:"exact,omitempty"` // of Totals
	Segments      []Segment        `json:"segments"`
}

// NewAddressMap returns the addresses that a pool offers in a network.
func NewAddressMap(i *inventory.Inventory, p *inventory.Pool, network allocator.Range) AddressMap {
	segments := i.Segments(p.Domain, Offered(p, network))
	m := AddressMap{APIVersion: APIVersion, Kind: KindAddressMap, Pool: NewObject(p.Key), RoutingDomain: p.Domain, Network: NetworkText(network), Totals: map[string]int64{}, Segments: []Segment{}}
	for _, g := range segments {
		m.Segments = append(m.Segments, NewSegment(i, p.Domain, g))
	}
	m.count()
	return m
}

// NewWholeMap returns the addresses that a pool offers in all its networks. Network is
// the first network. Precondition: the pool offers addresses.
func NewWholeMap(i *inventory.Inventory, p *inventory.Pool) (m AddressMap) {
	for n, network := range p.Networks() {
		part := NewAddressMap(i, p, network)
		if n == 0 {
			m = part
			continue
		}
		m.Segments = append(m.Segments, part.Segments...)
	}
	m.count()
	return m
}

// OfTenant returns the segments of a tenant.
func (m AddressMap) OfTenant(tenant string) AddressMap {
	segments := []Segment{}
	for _, s := range m.Segments {
		if s.Tenant == tenant {
			segments = append(segments, s)
		}
	}
	m.Segments = segments
	m.count()
	return m
}

// count sets the numbers of addresses by state.
func (m *AddressMap) count() {
	ranges := map[string][]allocator.Range{}
	for _, s := range m.Segments {
		ranges[s.State] = append(ranges[s.State], s.Exact)
	}
	m.Totals, m.Digits = map[string]int64{}, nil
	for s, r := range ranges {
		m.Totals[s] = allocator.Total(r)
		m.Digits.add(s, m.Totals[s], allocator.DecimalOf(r...))
	}
}

// Offered returns the ranges that a pool offers in a network.
func Offered(p *inventory.Pool, network allocator.Range) []allocator.Range {
	whole := []allocator.Range{network}
	return allocator.Subtract(whole, allocator.Subtract(whole, p.Ranges))
}

// Fit is the number of sets of ranges that fit into a pool.
type Fit struct {
	APIVersion   string  `json:"apiVersion"`
	Kind         string  `json:"kind"`
	Pool         *Object `json:"pool"`
	Sizes        []int64 `json:"sizes"`
	Fits         int64   `json:"fits"`
	AtLeast      bool    `json:"atLeast,omitempty"` // Fits is a lower bound
	Left         int64   `json:"left"`              // free addresses that no set uses
	Unfragmented int64   `json:"unfragmented"`      // sets that would fit if the free addresses were one block
	LargestFree  int64   `json:"largestFree"`
	Digits       Digits  `json:"exact,omitempty"`
}

// SetNumbers sets the numbers of addresses of a pool.
func (p *ProviderPool) SetNumbers(i *inventory.Inventory, pool inventory.Key) {
	u := i.Usage(pool)
	p.Free, p.LargestFree, p.Exact, p.Digits = u.Available, u.LargestFree, u.Exact, digitsOfPool(i, pool, "", "", "free", "largestFree")
}

// NewFit returns the number of sets of ranges with these sizes that fit into a pool.
func NewFit(i *inventory.Inventory, p *inventory.Pool, sizes []int64, f inventory.Fit) Fit {
	return Fit{APIVersion, KindFit, NewObject(p.Key), sizes, f.Sets, f.AtLeast, f.Left, f.Unfragmented, f.Largest, digitsOfPool(i, p.Key, "", "", "", "largestFree")}
}

// ProviderFit is the number of tenants that fit into the NetworkPools of a
// ProviderConfig.
type ProviderFit struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Provider   *Object       `json:"provider"`
	Fits       int64         `json:"fits"`              // number of tenants
	AtLeast    bool          `json:"atLeast,omitempty"` // Fits is a lower bound
	Next       []TenantRange `json:"next"`              // ranges of the next tenant; empty if no tenant fits
	// Lacks is the type of the first range for which no pool has room; "" if a tenant
	// fits.
	Lacks string `json:"lacks,omitempty"`
	// WaitsFor is the paused or invalid pool for which further tenants wait; nil without
	// such a pool.
	WaitsFor *Object        `json:"waitsFor,omitempty"`
	Pools    []ProviderPool `json:"pools"` // in the order in which the manager searches the pools
}

// TenantRange is a range for a tenant.
type TenantRange struct {
	Type string  `json:"type"`
	Size int64   `json:"size"`
	Pool *Object `json:"pool"`
}

// ProviderPool is a NetworkPool of a ProviderConfig.
type ProviderPool struct {
	Object
	Priority    int32            `json:"priority"`
	Free        int64            `json:"free"`
	LargestFree int64            `json:"largestFree"`
	Digits      Digits           `json:"exact,omitempty"`
	Sizes       map[string]int64 `json:"sizes"`             // type -> size of the tenant's range
	Fits        int64            `json:"fits"`              // number of tenants, without the other pools
	AtLeast     bool             `json:"atLeast,omitempty"` // Fits is a lower bound
	Note        string           `json:"note,omitempty"`    // why no tenant gets addresses of the pool

	// Exact contains the numbers of addresses without saturation.
	Exact allocator.Amounts `json:"-"`
	// FitsText is the text of Fits for messages.
	FitsText string `json:"-"`
}

// Plan is the effect of a change of a pool.
type Plan struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Pool       *Object   `json:"pool"`
	Denied     []string  `json:"denied,omitempty"`
	Owners     []Segment `json:"owners"`
	FreeBefore int64     `json:"freeBefore"`
	FreeAfter  int64     `json:"freeAfter"`
	Digits     Digits    `json:"exact,omitempty"`
	// Server is the API server's answer to a dry run; "" without a dry run.
	Server string `json:"server,omitempty"`
	// Warnings are those of the API server about the dry run.
	Warnings []string `json:"warnings,omitempty"`
}

// NewPlan returns the effect of a change of a pool.
func NewPlan(i *inventory.Inventory, p *inventory.Pool, plan inventory.Plan) Plan {
	item := Plan{
		APIVersion: APIVersion, Kind: KindPlan, Pool: NewObject(p.Key), FreeBefore: allocator.Total(plan.Before), FreeAfter: allocator.Total(plan.After), Owners: []Segment{},
	}
	item.Digits.add("freeBefore", item.FreeBefore, allocator.DecimalOf(plan.Before...))
	item.Digits.add("freeAfter", item.FreeAfter, allocator.DecimalOf(plan.After...))
	for _, fault := range plan.Faults {
		item.Denied = append(item.Denied, fault.Error())
	}
	if plan.Denied != nil {
		item.Denied = append(item.Denied, plan.Denied.Error())
	}
	for _, g := range plan.Owners {
		item.Owners = append(item.Owners, NewSegment(i, p.Domain, g))
	}
	return item
}
