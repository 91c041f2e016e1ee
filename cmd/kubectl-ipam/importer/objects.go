package importer

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

const (
	maxReserved       = 256    // bound of the entries of spec.reserved
	maxPreAllocations = 49_152 // bound of the entries of spec.preAllocations
	maxDescription    = 1024   // bound of the description of a reserved network, in characters
)

// addReservations adds the reservations among the items, and the pool with these
// reservations, to the plan.
func (pl *planner) addReservations(items []*item) {
	items = slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return !isReservation(it.kind) })
	if len(items) == 0 {
		return
	}
	var updated metav1.Object
	switch pool := pl.Pool.Object.(type) {
	case *butlerv1.NetworkPool:
		updated = pl.reserve(pool.DeepCopy(), items)
	case *metal3v1.IPPool:
		updated = pl.preAllocate(pool.DeepCopy(), items)
	}
	if len(pl.Conflicts) > 0 {
		return
	}
	pl.Updated = updated
	plan := pl.i.PlanUpdate(pl.Pool, updated)
	for _, fault := range plan.Faults {
		pl.addConflict(ConflictPool, nil, "the pool would break a rule: %v", fault)
	}
	if plan.Denied != nil {
		pl.addConflict(ConflictPool, nil, "the update of the pool would be denied: %v", plan.Denied)
	}
}

// reserve adds items to spec.reserved:
//
//   - a row of an exported entry of spec.reserved becomes an equal entry
//   - the addresses of other rows become as few networks as possible, with the
//     descriptions of the rows
func (pl *planner) reserve(pool *butlerv1.NetworkPool, items []*item) *butlerv1.NetworkPool {
	var loose []*item
	var ranges []allocator.Range
	for _, it := range items {
		if network, ok := it.ranges[0].Prefix(); ok && it.entry {
			pl.addReserved(pool, network, it.descriptions, it.rows())
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
		pl.addReserved(pool, network, descriptions[n], sortedRows(rows[n]))
	}
	if n := len(pool.Spec.Reserved); n > maxReserved {
		pl.addConflict(ConflictPool, nil, "spec.reserved of the pool would have %d networks, %d at most, because the addresses are scattered. IPAllocations have no such bound: make a TenantCluster the owner of rows without a tenant, with --tenant-map \"=NAMESPACE/NAME\", or import all rows with --as ipaddressclaims, which need no tenant. To reserve fewer networks, replace rows by the networks around them", n, maxReserved)
	}
	return pool
}

func (pl *planner) addReserved(pool *butlerv1.NetworkPool, network netip.Prefix, descriptions []string, rows []int) {
	pool.Spec.Reserved = append(pool.Spec.Reserved, butlerv1.ReservedRange{CIDR: network.String(), Description: joinDescriptions(descriptions)})
	pl.Reservations = append(pl.Reservations, Reservation{Kind: addressfile.KindReserved, Range: allocator.RangeOfPrefix(network), Rows: rows})
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

// preAllocate adds items to spec.preAllocations.
func (pl *planner) preAllocate(pool *metal3v1.IPPool, items []*item) *metal3v1.IPPool {
	if pool.Spec.PreAllocations == nil {
		pool.Spec.PreAllocations = map[string]metal3v1.IP{}
	}
	for _, it := range items {
		pool.Spec.PreAllocations[it.name] = metal3v1.IP(it.ranges[0].First.String())
		pl.Reservations = append(pl.Reservations, Reservation{Kind: addressfile.KindPreAllocation, Name: it.name, Range: it.ranges[0], Rows: it.rows()})
	}
	if n := len(pool.Spec.PreAllocations); n > maxPreAllocations {
		pl.addConflict(ConflictPool, nil, "spec.preAllocations of the pool would have %d entries, %d at most: leave a part of the file out", n, maxPreAllocations)
	}
	return pool
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
	first := it.ranges[0].First
	pool := pl.Pool.Key
	switch it.kind {
	case addressfile.KindIPAllocation:
		namespace, name, _ := strings.Cut(it.tenant, "/")
		o := &butlerv1.IPAllocation{
			TypeMeta: metav1.TypeMeta{APIVersion: butlerv1.GroupVersion.String(), Kind: string(it.kind)}, ObjectMeta: meta,
			Spec: butlerv1.IPAllocationSpec{
				PoolRef: butlerv1.LocalObjectReference{Name: pool.Name}, Type: it.purpose, PinnedRange: butler.FormatPinnedRange(it.ranges[0]),
				TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: namespace, Name: name},
			},
		}
		return o, butler.ValidateIPAllocation(o)
	case addressfile.KindIPClaim:
		meta.Annotations[metal3v1.AnnotationIPAddress] = first.String()
		if it.tenant != "" {
			meta.Labels[clusterpause.LabelClusterName] = it.tenant
		}
		o := &metal3v1.IPClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: metal3v1.GroupVersion.String(), Kind: string(it.kind)}, ObjectMeta: meta,
			Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: pool.Name}},
		}
		return o, metal3.ValidateIPClaim(nil, o)
	case addressfile.KindIPAddressClaim:
		meta.Annotations[metal3v1.AnnotationIPAddress] = first.String()
		group := metal3v1.GroupVersion.Group
		if pool.Resource == butler.ResourceNetworkPool {
			group = butlerv1.GroupVersion.Group
		}
		o := &ipamv1.IPAddressClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: ipamv1.GroupVersion.String(), Kind: string(it.kind)}, ObjectMeta: meta,
			Spec: ipamv1.IPAddressClaimSpec{ClusterName: it.tenant, PoolRef: ipamv1.IPPoolReference{APIGroup: group, Kind: inventory.KindOf(pool), Name: pool.Name}},
		}
		return o, clusterapi.ValidateIPAddressClaim(nil, o)
	}
	o := &novaedgev1.ProxyVIP{
		TypeMeta: metav1.TypeMeta{APIVersion: novaedgev1.GroupVersion.String(), Kind: string(it.kind)}, ObjectMeta: meta,
		Spec: novaedgev1.ProxyVIPSpec{PoolRef: &novaedgev1.PoolReference{Name: pool.Name}, Mode: novaedgev1.VIPMode(it.mode)},
	}
	var faults field.ErrorList
	for _, text := range it.ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			faults = append(faults, field.Invalid(field.NewPath("spec", "ports"), text, "must be a port"))
		}
		o.Spec.Ports = append(o.Spec.Ports, int32(port))
	}
	families := map[bool]bool{}
	for _, r := range it.ranges {
		if r.First != r.Last || families[r.First.Is4()] {
			faults = append(faults, field.Invalid(field.NewPath("spec", "address"), rangesText(it.ranges), "must be one address of each family at most"))
		}
		families[r.First.Is4()] = true
		switch {
		case r.First.Is4():
			o.Spec.Address = novaedge.FormatAddress(r.First)
		default:
			o.Spec.IPv6Address, o.Spec.AddressFamily = novaedge.FormatAddress(r.First), novaedgev1.FamilyIPv6
		}
	}
	if len(families) == 2 {
		o.Spec.AddressFamily = novaedgev1.FamilyDual
	}
	return o, append(faults, novaedge.ValidateProxyVIP(o)...)
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
