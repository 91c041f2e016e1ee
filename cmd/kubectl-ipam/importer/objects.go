package importer

import (
	"net/netip"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// maxDescription bounds the description of a reserved network, in characters.
const maxDescription = 1024

// addReservations adds the reservations among the items, and the pool with these
// reservations, to the plan.
func (pl *planner) addReservations(items []*item) {
	items = slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return !isReservation(it.kind) })
	if len(items) == 0 {
		return
	}
	add := pl.reserveNetworks
	if pl.Pool.Kind.Reservations.Named {
		add = pl.reserveNames
	}
	entries := add(items)
	if len(pl.Conflicts) > 0 {
		return
	}
	updated := pl.Pool.Kind.Reservations.Add(pl.Pool.Object, entries)
	pl.Updated = updated
	plan := pl.i.PlanUpdate(pl.Pool, updated)
	for _, fault := range plan.Faults {
		pl.addConflict(ConflictPool, nil, "the pool would break a rule: %v", fault)
	}
	if plan.Denied != nil {
		pl.addConflict(ConflictPool, nil, "the update of the pool would be denied: %v", plan.Denied)
	}
}

// countReservations returns the number of entries of the pool with new entries.
func (pl *planner) countReservations(entries []object.Reservation) int {
	present, _ := pl.Pool.Kind.Reservations.List(pl.Pool.Object)
	names := map[string]bool{}
	for _, r := range present {
		names[r.Name] = true
	}
	repeats := func(r object.Reservation) bool { return r.Name != "" && names[r.Name] }
	return len(present) + len(slices.DeleteFunc(slices.Clone(entries), repeats))
}

// reserveNetworks returns the entries for items that reserve networks:
//
//   - a row of an exported entry of spec.reserved becomes an equal entry
//   - the addresses of other rows become as few networks as possible, with the
//     descriptions of the rows
func (pl *planner) reserveNetworks(items []*item) (entries []object.Reservation) {
	add := func(network netip.Prefix, descriptions []string, rows []int) {
		r := allocator.RangeOfPrefix(network)
		entries = append(entries, object.Reservation{Range: r, Description: joinDescriptions(descriptions)})
		pl.Reservations = append(pl.Reservations, Reservation{Kind: addressfile.KindReserved, Range: r, Rows: rows})
	}
	var loose []*item
	var ranges []allocator.Range
	for _, it := range items {
		if network, ok := it.ranges[0].Prefix(); ok && it.entry {
			add(network, it.descriptions, it.rows())
			continue
		}
		loose, ranges = append(loose, it), append(ranges, it.ranges...)
	}
	networks := pl.networksOf(ranges)
	descriptions, rows := make([][]string, len(networks)), make([][]int, len(networks))
	for _, it := range loose {
		r := it.ranges[0]
		n, _ := slices.BinarySearchFunc(networks, r.First, func(network netip.Prefix, a netip.Addr) int {
			if allocator.RangeOfPrefix(network).Last.Less(a) {
				return -1
			}
			return 1
		})
		for ; n < len(networks) && !r.Last.Less(networks[n].Addr()); n++ {
			descriptions[n], rows[n] = append(descriptions[n], it.descriptions...), append(rows[n], it.rowsIn(allocator.RangeOfPrefix(networks[n]))...)
		}
	}
	for n, network := range networks {
		add(network, descriptions[n], sortedRows(rows[n]))
	}
	if n, most := pl.countReservations(entries), pl.Pool.Kind.Reservations.Max; n > most {
		pl.addConflict(ConflictPool, nil, "spec.reserved of the pool would have %d networks, %d at most, because the addresses are scattered. IPAllocations have no such bound: make a TenantCluster the owner of rows without a tenant, with --tenant-map \"=NAMESPACE/NAME\", or import all rows with --as ipaddressclaims, which need no tenant. To reserve fewer networks, replace rows by the networks around them", n, most)
	}
	return entries
}

// networksOf returns ranges as networks. No network contains addresses on both sides of a
// border of the pool's ranges, because the API denies a reserved network across a border.
func (pl *planner) networksOf(ranges []allocator.Range) (networks []netip.Prefix) {
	pieces := allocator.Subtract(ranges, pl.windows)
	for _, w := range pl.windows {
		pieces = append(pieces, allocator.Subtract(ranges, allocator.Subtract(ranges, []allocator.Range{w}))...)
	}
	for _, r := range pieces {
		networks = append(networks, prefixesOf(r)...)
	}
	slices.SortFunc(networks, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
	return networks
}

// prefixesOf divides a range into the smallest number of networks.
func prefixesOf(r allocator.Range) (networks []netip.Prefix) {
	for first := r.First; ; {
		for bits := 0; ; bits++ {
			p := netip.PrefixFrom(first, bits)
			network := allocator.RangeOfPrefix(p)
			if p.Masked() != p || r.Last.Less(network.Last) {
				continue
			}
			networks = append(networks, p)
			if network.Last == r.Last {
				return networks
			}
			first = network.Last.Next()
			break
		}
	}
}

// joinDescriptions joins the distinct descriptions of rows and cuts the text to
// maxDescription characters.
func joinDescriptions(texts []string) string {
	seen := map[string]bool{}
	joined := strings.Join(slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		repeats := seen[text]
		seen[text] = true
		return repeats
	}), "; ")
	if runes := []rune(joined); len(runes) > maxDescription {
		joined = string(runes[:maxDescription-1]) + "…"
	}
	return joined
}

// reserveNames returns the entries for items that keep an address for a name.
func (pl *planner) reserveNames(items []*item) (entries []object.Reservation) {
	for _, it := range items {
		entries = append(entries, object.Reservation{Name: it.name, Range: it.ranges[0]})
		pl.Reservations = append(pl.Reservations, Reservation{Kind: addressfile.KindPreAllocation, Name: it.name, Range: it.ranges[0], Rows: it.rows()})
	}
	if n, most := pl.countReservations(entries), pl.Pool.Kind.Reservations.Max; n > most {
		pl.addConflict(ConflictPool, nil, "spec.preAllocations of the pool would have %d entries, %d at most: leave a part of the file out", n, most)
	}
	return entries
}

// addClaims adds the claims among the items to the plan.
func (pl *planner) addClaims(items []*item) {
	for _, it := range items {
		if isReservation(it.kind) {
			continue
		}
		key := pl.keyOf(it)
		o, faults := pl.newObject(it, key)
		if reasons := apivalidation.NameIsDNSSubdomain(key.Name, false); len(reasons) > 0 {
			faults = append(faults, field.Invalid(field.NewPath("metadata", "name"), key.Name, reasons[0]))
		}
		for _, fault := range faults {
			pl.addConflict(ConflictInvalid, it.rows(), "%s as %s: %v", rangesText(it.ranges), it.kind, fault)
		}
		pl.Claims = append(pl.Claims, Claim{Key: key, Kind: it.kind, Tenant: it.tenant, Ranges: it.ranges, Rows: it.rows(), Object: o})
	}
}

// newObject returns the claim that an item becomes, and the rules that the claim breaks.
func (pl *planner) newObject(it *item, key inventory.Key) (metav1.Object, field.ErrorList) {
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{}, Labels: map[string]string{}}
	switch len(it.descriptions) {
	case 0:
	case 1:
		meta.Annotations[inventory.AnnotationDescription] = it.descriptions[0]
	default:
		meta.Annotations[inventory.AnnotationDescription] = joinDescriptions(it.descriptions)
	}
	if it.team != "" {
		meta.Labels[butlerv1.LabelTeam] = it.team
	}
	kind := kinds.ForResource(key.Resource)
	return kind.NewClaim(object.ClaimTemplate{
		Metadata: meta, Pool: pl.Pool.Key, Ranges: it.ranges, Tenant: it.tenant, Purpose: object.Purpose(it.purpose),
		Mode: it.mode, Ports: it.ports,
	})
}

// Tenants returns the number of tenants of the claims of a kind.
func (p *Plan) Tenants(k addressfile.Kind) int {
	tenants := map[string]bool{}
	for _, c := range p.Claims {
		if c.Tenant != "" && c.Kind == k {
			tenants[c.Tenant] = true
		}
	}
	return len(tenants)
}

// Count returns the number of claims of each kind.
func (p *Plan) Count() map[addressfile.Kind]int {
	counts := map[addressfile.Kind]int{}
	for _, c := range p.Claims {
		counts[c.Kind]++
	}
	return counts
}
