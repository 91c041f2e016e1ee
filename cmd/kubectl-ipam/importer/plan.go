package importer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Options select the kind, type, tenant and routing domain of imported rows.
type Options struct {
	// As is the kind of every imported object. With "" the kind is the kind in the row,
	// else the default kind of the pool.
	As addressfile.Kind
	// Type is the type of IPAllocations whose rows have no type. "" means nodes.
	Type butlerv1.IPAllocationType
	// Tenants maps a tenant of the file to namespace/name. The key "" is the tenant of
	// rows without a tenant. TenantNamespace is the namespace of a tenant whose name has
	// no namespace.
	Tenants         map[string]string
	TenantNamespace string
	// SlugTenants turns the name of a tenant that Tenants does not contain into the name
	// of an object: "Acme Corp" is acme-corp (addressfile.Slug).
	SlugTenants bool
	// Domains maps a VRF of the file to a routing domain.
	Domains map[string]string
	// SkipOutside leaves out rows with a range outside the pool. Without SkipOutside such
	// a row is a conflict. A range that is partly in the pool is always a conflict.
	SkipOutside bool
}

// ConflictKind names the opponent of a row in a conflict: another row, a stored object,
// or a rule.
type ConflictKind string

const (
	ConflictRows         ConflictKind = "rows"         // another row
	ConflictName         ConflictKind = "name"         // a row or a stored claim with an equal name
	ConflictOutside      ConflictKind = "outside"      // the row is outside the ranges of the pool
	ConflictOwned        ConflictKind = "owned"        // a stored claim
	ConflictReserved     ConflictKind = "reserved"     // a reserved range, or the gateway, of a pool
	ConflictPreAllocated ConflictKind = "preAllocated" // an entry of spec.preAllocations of an IPPool
	ConflictCooldown     ConflictKind = "cooldown"     // the cooldown of a released address
	ConflictGranted      ConflictKind = "granted"      // an open grant
	ConflictMoved        ConflictKind = "moved"        // a claim that was moved to another cluster
	ConflictWithheld     ConflictKind = "withheld"     // an update of a pool that removes the addresses
	ConflictPool         ConflictKind = "pool"         // a rule of the pool
	ConflictInvalid      ConflictKind = "invalid"      // a rule of the planned object
)

// Conflict describes why rows cannot be imported.
type Conflict struct {
	Kind ConflictKind
	Rows []int // in ascending order; empty for a conflict of the pool
	Text string
}

// LeftOut lists rows from which no object is made, with the reason.
type LeftOut struct {
	Reason string
	Rows   []int
}

// Claim is a claim to create.
type Claim struct {
	Key    inventory.Key
	Kind   addressfile.Kind
	Tenant string
	Ranges []allocator.Range
	Rows   []int
	Object metav1.Object
}

// Reservation is an addition to spec.reserved of a NetworkPool, or to spec.preAllocations
// of an IPPool.
type Reservation struct {
	Kind  addressfile.Kind
	Name  string // key in spec.preAllocations; "" for spec.reserved
	Range allocator.Range
	Rows  []int
}

// Plan is the result of NewPlan. Claims, in address order, Reservations and Updated are
// the objects that the cluster lacks.
type Plan struct {
	Pool         *inventory.Pool
	Claims       []Claim
	Reservations []Reservation
	// Updated is the pool with the Reservations; nil without Reservations.
	Updated    metav1.Object
	Conflicts  []Conflict
	LeftOut    []LeftOut // rows that can have addresses in use, and are not imported
	NotInUse   []LeftOut // rows without addresses in use, as the file says
	Rows       int       // number of rows of the file
	Present    int       // number of rows whose addresses the cluster has already, with the owner in the file
	Duplicates int       // number of rows whose addresses another row of the same owner has
}

// Empty reports whether the import creates no claim and does not update the pool.
func (p *Plan) Empty() bool { return len(p.Claims) == 0 && p.Updated == nil }

// part is a range of a row.
type part struct {
	row int
	allocator.Range
}

// item is one claim or one reservation to import, made of one or more rows.
type item struct {
	kind         addressfile.Kind
	name         string // "" if the name derives from the ranges after mergeItems
	derived      bool   // the name derives from the address
	ranges       []allocator.Range
	parts        []part
	singles      bool // the addresses may be joined with consecutive addresses of other items
	entry        bool // the row is an exported entry of spec.reserved
	tenant       string
	purpose      butlerv1.IPAllocationType
	purposeGiven bool
	team         string
	mode         string
	ports        []string
	descriptions []string
}

// sameOwner reports whether two items have the same owner. Items with the same owner may
// have common addresses.
func (it *item) sameOwner(o *item) bool {
	if it.kind != o.kind || it.name != o.name {
		return false
	}
	return it.kind == addressfile.KindReserved || it.name != "" || it.tenant == o.tenant && it.purpose == o.purpose && it.team == o.team
}

// common returns the addresses of a range that an item has.
func (it *item) common(r allocator.Range) (ranges []allocator.Range) {
	for _, own := range it.ranges {
		if own.Overlaps(r) {
			ranges = append(ranges, own.Intersect(r))
		}
	}
	return ranges
}

// rowsIn returns the rows of an item that have addresses of a range.
func (it *item) rowsIn(r allocator.Range) (rows []int) {
	for _, p := range it.parts {
		if p.Overlaps(r) {
			rows = append(rows, p.row)
		}
	}
	return sortedRows(rows)
}

func (it *item) rows() (rows []int) {
	for _, p := range it.parts {
		rows = append(rows, p.row)
	}
	return sortedRows(rows)
}

func sortedRows(rows []int) []int {
	slices.Sort(rows)
	return slices.Compact(rows)
}

// owner describes the owner of an item, for messages.
func (it *item) owner() string {
	switch {
	case it.kind == addressfile.KindReserved:
		return "reserved"
	case it.kind == addressfile.KindPreAllocation:
		return fmt.Sprintf("kept for %s", it.name)
	case it.kind == addressfile.KindIPAllocation && it.name == "":
		return fmt.Sprintf("for %s (%s)", it.tenant, it.purpose)
	case it.tenant != "":
		return fmt.Sprintf("for %s %s of %s", it.kind, it.name, it.tenant)
	}
	return fmt.Sprintf("for %s %s", it.kind, it.name)
}

// possibleKinds lists the kinds that a row can become in a pool. The first kind is the
// default: the claims of the API of the pool, or its named reservations.
func possibleKinds(p *inventory.Pool) (list []addressfile.Kind) {
	for _, k := range kinds.ClaimsOf(p.Key.Resource) {
		list = append(list, addressfile.Kind(k.Name))
	}
	switch r := p.Kind.Reservations; {
	case r == nil:
		return list
	case r.Named:
		return append([]addressfile.Kind{addressfile.KindPreAllocation}, list...)
	}
	return slices.Insert(list, 1, addressfile.KindReserved)
}

// planner makes a Plan.
type planner struct {
	*Plan
	i                 *inventory.Inventory
	file              *addressfile.File
	o                 Options
	windows           []allocator.Range // ranges of the pool, in address order
	network           []allocator.Range // networks of which may be reserved
	leftOut, notInUse map[string][]int  // reason -> rows
	slugs             map[string]string // slug -> tenant of the file
	unresolved        map[string]bool   // tenants of the file that the options do not resolve

	overlapsWindows, overlapsNetwork func([]allocator.Range) bool
}

// NewPlan plans the import of a file into a pool. The error is one of these:
//
//   - a fault of the options or of the pool
//   - the Faults of rows whose kinds the options do not resolve
//   - a TenantError, with the faults of all rows, if the options do not resolve tenants
//
// Conflicts are part of the Plan and not an error.
func NewPlan(i *inventory.Inventory, p *inventory.Pool, f *addressfile.File, o Options) (*Plan, error) {
	if err := checkOptions(p, o); err != nil {
		return nil, err
	}
	if o.Type == "" {
		o.Type = butlerv1.TypeNodes
	}
	pl := &planner{Plan: &Plan{Pool: p, Rows: len(f.Records)}, i: i, file: f, o: o, windows: p.Windows(), leftOut: map[string][]int{}, notInUse: map[string][]int{}, slugs: map[string]string{}, unresolved: map[string]bool{}}
	if r := p.Kind.Reservations; r != nil && r.FindReservable != nil {
		pl.network = r.FindReservable(p.Object)
	}
	pl.overlapsWindows, pl.overlapsNetwork = allocator.OverlapsAny(pl.windows), allocator.OverlapsAny(pl.network)
	items, faults := pl.newItems()
	if len(pl.unresolved) > 0 {
		return nil, &TenantError{slices.Sorted(maps.Keys(pl.unresolved)), groupFaults(faults)}
	}
	if len(faults) > 0 {
		return nil, groupFaults(faults)
	}
	items = pl.mergeItems(items)
	missing := pl.compareWithCluster(items)
	pl.addReservations(missing)
	pl.addClaims(missing)
	slices.SortStableFunc(pl.Claims, func(x, y Claim) int { return x.Ranges[0].First.Compare(y.Ranges[0].First) })
	pl.LeftOut, pl.NotInUse = sortedReasons(pl.leftOut), sortedReasons(pl.notInUse)
	slices.SortStableFunc(pl.Conflicts, func(x, y Conflict) int { return slices.Compare(x.Rows, y.Rows) })
	return pl.Plan, nil
}

// sortedReasons returns rows by reason.
func sortedReasons(rows map[string][]int) (sorted []LeftOut) {
	for _, reason := range slices.Sorted(maps.Keys(rows)) {
		sorted = append(sorted, LeftOut{reason, sortedRows(rows[reason])})
	}
	return sorted
}

// TenantError is the error of NewPlan for tenants of the file that the options do not
// resolve.
type TenantError struct {
	Tenants []string // in alphabetical order
	addressfile.Faults
}

func checkOptions(p *inventory.Pool, o Options) error {
	switch {
	case p.Deleting:
		return fmt.Errorf("pool %s is being deleted: use another pool", inventory.NameOf(p.Key))
	case o.Type != "" && o.Type != butlerv1.TypeNodes && o.Type != butlerv1.TypeLoadBalancer:
		return fmt.Errorf("type %q: use nodes or loadbalancer", o.Type)
	case p.Fault != "":
		return fmt.Errorf("pool %s breaks a rule and offers no addresses until it is corrected: %s", inventory.NameOf(p.Key), p.Fault)
	}
	if possible := possibleKinds(p); o.As != "" && !slices.Contains(possible, o.As) {
		return fmt.Errorf("rows cannot become %s in a %s: only %s", o.As, inventory.KindOf(p.Key), addressfile.JoinKinds(possible))
	}
	for from, tenant := range o.Tenants {
		if _, problem := parseTenant(tenant); problem != "" {
			return fmt.Errorf("tenant map %q=%q: %s", from, tenant, problem)
		}
	}
	return nil
}

func (pl *planner) addConflict(kind ConflictKind, rows []int, format string, args ...any) {
	pl.Conflicts = append(pl.Conflicts, Conflict{kind, rows, fmt.Sprintf(format, args...)})
}

// span is a range of an item.
type span struct {
	*item
	allocator.Range
}

// mergeItems joins items of one owner that repeat or continue each other, and drops items
// that are in conflict with an earlier item. The items are compared in address order,
// then row order.
func (pl *planner) mergeItems(items []*item) []*item {
	var spans []span
	for _, it := range items {
		for _, r := range it.ranges {
			spans = append(spans, span{it, r})
		}
	}
	slices.SortStableFunc(spans, func(x, y span) int {
		return cmp.Or(x.First.Compare(y.First), cmp.Compare(x.parts[0].row, y.parts[0].row))
	})
	dropped, joined := map[*item]bool{}, map[*item]bool{}
	var active []span // spans that the next spans can overlap or continue
	for _, s := range spans {
		active = slices.DeleteFunc(active, func(a span) bool {
			end := a.item.ranges[0].Last // an earlier span can have extended the range of the item
			if len(a.item.ranges) > 1 {
				end = a.Last
			}
			return end.BitLen() != s.First.BitLen() || end.Less(s.First) && end.Next() != s.First || dropped[a.item]
		})
		if dropped[s.item] || joined[s.item] {
			continue
		}
		if rival := pl.findClash(active, s); rival != nil {
			dropped[s.item] = true
			common := rival.common(s.Range)
			first := rival.rowsIn(common[0])
			rows := sortedRows(slices.Concat(first[:1], s.rows()))
			pl.addConflict(ConflictRows, rows, "%s is %s in %s %d, and %s in %s %d", rangesText(common), rival.owner(), pl.file.Unit, first[0], s.owner(), pl.file.Unit, s.parts[0].row)
			continue
		}
		if same := pl.findSame(active, s); same != nil {
			joined[s.item] = true
			if same.ranges[0].Covers(s.Range) {
				pl.Duplicates++
			}
			if s.Range != same.ranges[0] && same.name == "" && same.kind == addressfile.KindIPAllocation {
				if same.ranges[0].Last.Less(s.Last) {
					same.ranges[0].Last = s.Last
				}
				same.singles = same.singles && s.singles
			}
			same.parts = append(same.parts, s.parts...)
			same.descriptions = append(same.descriptions, s.descriptions...)
			continue
		}
		active = append(active, s)
	}
	items = slices.DeleteFunc(items, func(it *item) bool { return dropped[it] || joined[it] })
	return pl.checkNames(items)
}

// findClash returns an active item that has addresses of a span and another owner than
// the span.
func (pl *planner) findClash(active []span, s span) *item {
	for _, a := range active {
		sameName := a.name == s.name && a.name != "" && (a.kind == addressfile.KindPreAllocation || s.kind == addressfile.KindPreAllocation) // preallocated to this claim
		if slices.ContainsFunc(a.item.ranges, s.Overlaps) && !a.sameOwner(s.item) && !sameName {
			return a.item
		}
	}
	return nil
}

// findSame returns an active item that a span repeats or continues.
func (pl *planner) findSame(active []span, s span) *item {
	for _, a := range active {
		switch r := a.item.ranges[0]; {
		case a.item == s.item || !a.sameOwner(s.item) || len(a.item.ranges) != len(s.item.ranges):
		case slices.Equal(a.item.ranges, s.item.ranges) && a.entry == s.entry && (!a.entry || slices.Equal(a.descriptions, s.descriptions)):
			return a.item
		case a.kind != addressfile.KindIPAllocation || a.name != "":
		case r.Overlaps(s.Range), r.Last.Next() == s.First && a.item.singles && s.singles && allocator.CoversIn(pl.windows, allocator.Range{First: r.First, Last: s.Last}):
			return a.item
		}
	}
	return nil
}

// checkNames records a conflict for each item whose name an earlier item has, and drops
// the item.
func (pl *planner) checkNames(items []*item) []*item {
	type key struct {
		kind addressfile.Kind
		name string
	}
	first := map[key]*item{}
	return slices.DeleteFunc(items, func(it *item) bool {
		if it.kind == addressfile.KindReserved {
			return false
		}
		k := key{it.kind, pl.keyOf(it).Name}
		other := first[k]
		if other == nil {
			first[k] = it
			return false
		}
		pl.addConflict(ConflictName, sortedRows(slices.Concat(other.rows(), it.rows())), "%s and %s are both for %s %s: give each a name of its own", rangesText(other.ranges), rangesText(it.ranges), it.kind, k.name)
		return true
	})
}

func rangesText(ranges []allocator.Range) string {
	var texts []string
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, " ")
}
