package health

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	"butlerlabs.dev/ipam/allocator/state"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// nearlyFull is the share of allocated addresses from which a pool is reported.
const nearlyFull = 0.95

// checkPool lists the defects of a pool.
func checkPool(i *inventory.Inventory, p *inventory.Pool, grace time.Duration) (list []Finding) {
	add := func(d Defect, remedy, format string, values ...any) {
		list = append(list, newFinding(d, []inventory.Key{p.Key}, remedy, inventory.TitleOf(p.Key)+" "+format, values...))
	}
	switch {
	case p.Faulty:
		add(FaultyPool, "correct the field: the pool allocates nothing until then", "breaks a rule: %s", p.Fault)
		return list
	case p.Fault != "":
		add(FaultyPool, "correct the field: the pool allocates by its other fields until then", "breaks a rule: %s", p.Fault)
	}
	checkPoolOwners(i, p, grace, add)
	checkCooldowns(i, p, add)
	checkLists(p, add)
	for _, other := range i.Overlapping(p) {
		if inventory.CompareKeys(p.Key, other) < 0 {
			list = append(list, newFinding(Overlap, []inventory.Key{p.Key, other},
				"nothing, if this is intended: no address is allocated twice. Otherwise correct the ranges, or create one of the pools again in another routing domain",
				"%s and %s offer the same addresses, which each allocates to its own claims", inventory.TitleOf(p.Key), inventory.TitleOf(other)))
		}
	}
	checkCapacity(i, p, add)
	return list
}

func checkPoolOwners(i *inventory.Inventory, p *inventory.Pool, grace time.Duration, add func(d Defect, remedy, format string, values ...any)) {
	owners := i.StayingOwners(p.Key)
	if p.Deleting && len(owners) > 0 {
		add(PoolWaits, "delete its claims: kubectl ipam claims --pool "+i.ArgumentOf(p.Key), "is being deleted while %s %s addresses of it", allocator.Counted(len(owners), "object"), allocator.Agree(len(owners), "owns", "own"))
	}
	isOld := func(o state.Owner) bool { c := i.Claim(o.Key); return c != nil && i.Now().Sub(c.Created) >= grace }
	if finalizer := p.Description.Finalizer; !p.Deleting && !slices.Contains(p.Object.GetFinalizers(), finalizer) && slices.ContainsFunc(owners, isOld) {
		add(PoolFinalizerMissing, "see the log of the manager, which adds it again: without it the pool can be deleted under its claims", "lacks the finalizer %s while its addresses are owned", finalizer)
	}
}

// checkCooldowns checks whether the cooldown list of a pool can be read and has room for
// one more range.
func checkCooldowns(i *inventory.Inventory, p *inventory.Pool, add func(d Defect, remedy, format string, values ...any)) {
	list := poolrecord.ReadList(p.Object)
	if !list.Readable {
		add(CooldownsUnreadable, "correct the annotation, or remove it: kubectl annotate "+kubectlName(p.Key)+" "+butlerv1.AnnotationCooldown+"-",
			"has an annotation %s that cannot be read: the ranges that only this list keeps are free", butlerv1.AnnotationCooldown)
		return
	}
	if len(p.Ranges) == 0 || p.ReuseDelay() == 0 && len(list.Ranges) == 0 {
		return
	}
	next := state.RecordedRange{Range: p.Ranges[0], Until: i.Now().Add(p.ReuseDelay())}
	if _, unlisted := poolrecord.FormatList(p.Object, append(slices.Clone(list.Ranges), next), list.StoredRevision()); len(unlisted) > 0 {
		add(CooldownsFull, "remove large annotations of other programs, or shorten the reuse delay: what is not listed is free after a restart of the manager",
			"has no room for another range in annotation %s, which lists %s", butlerv1.AnnotationCooldown, allocator.Counted(len(list.Ranges), "range"))
	}
}

// checkLists checks whether the lists in the status of a pool have room for their
// entries.
func checkLists(p *inventory.Pool, add func(d Defect, remedy, format string, values ...any)) {
	for _, list := range p.Description.FullLists {
		add(StatusListFull, list.Remedy, "%s", list.Text)
	}
}

func checkCapacity(i *inventory.Inventory, p *inventory.Pool, add func(d Defect, remedy, format string, values ...any)) {
	u := i.Usage(p.Key)
	available, allocated, hidden := u.Available, u.Allocated, ""
	if free, some := i.HiddenOwners(p); some {
		available, allocated, hidden = free, u.Total-free, "; "+i.NoteOfHiddenOwners(p)
	}
	use := newPoolUse(i, p)
	switch {
	case u.Total == 0:
		add(OnlyReserved, "correct its ranges or its reservations", "offers no address: all are reserved")
	case available == 0:
		add(Full, use.remedy(i), "is full: %d of %d addresses are allocated%s%s", allocated, u.Total, use.text(i.Now()), hidden)
	case u.Utilization() >= nearlyFull || available < u.Available && float64(u.Total-available) >= nearlyFull*float64(u.Total):
		add(NearlyFull, use.remedy(i), "has %d free addresses of %d%s%s", available, u.Total, use.text(i.Now()), hidden)
	}
	for _, claim := range p.Description.DefaultCounts {
		if u.Available >= claim.Count && claim.Count > u.LargestFree {
			add(Fragmented, "enlarge the pool, or delete and create again small claims between the free blocks: kubectl ipam map "+i.ArgumentOf(p.Key),
				"has %d free addresses, and no free block for the default of %d of type %s (largest block %d)", u.Available, claim.Count, claim.Purpose, u.LargestFree)
		}
	}
}

// poolUse describes the addresses of a pool that are not free.
type poolUse struct {
	cooldown  int64           // number of addresses in cooldown
	nextFree  time.Time       // end of the first cooldown; zero if no end is known
	ownedFrom []inventory.Key // pools that allocated addresses of the pool to claims, in the order of CompareKeys
}

func newPoolUse(i *inventory.Inventory, p *inventory.Pool) (use poolUse) {
	cooldown, first := i.Cooldown(p)
	use.cooldown, use.nextFree = allocator.Total(cooldown), first
	pools := map[inventory.Key]bool{}
	for _, g := range i.Segments(p.Domain, p.Ranges) {
		if g.State == state.SegmentOwned && i.Pool(g.Pool) != nil {
			pools[g.Pool] = true
		}
	}
	use.ownedFrom = slices.SortedFunc(maps.Keys(pools), inventory.CompareKeys)
	return use
}

// text returns the number of addresses in cooldown for a message; "" without a cooldown.
func (u poolUse) text(now time.Time) string {
	if u.cooldown == 0 {
		return ""
	}
	text := fmt.Sprintf("; %d %s in cooldown", u.cooldown, allocator.Agree(u.cooldown, "is", "are"))
	if !u.nextFree.IsZero() {
		text += fmt.Sprintf(": the first becomes free in %s", max(time.Second, u.nextFree.Sub(now).Round(time.Second)))
	}
	return text
}

// remedy returns the remedy for a pool with few free addresses.
func (u poolUse) remedy(i *inventory.Inventory) string {
	var remedies []string
	if !u.nextFree.IsZero() {
		remedies = append(remedies, "wait until "+u.nextFree.UTC().Format(time.RFC3339))
	}
	remedies = append(remedies, "enlarge the pool")
	if len(u.ownedFrom) > 0 {
		var commands []string
		for _, k := range u.ownedFrom {
			commands = append(commands, "kubectl ipam claims --pool "+i.ArgumentOf(k))
		}
		remedies = append(remedies, "delete claims: "+strings.Join(commands, ", "))
	}
	return strings.Join(remedies, ", or ")
}

// Use is an address in use by a Node or a Service of the cluster.
type Use struct {
	Address allocator.Range // range of one address
	By      string          // "Node worker-3"
	UID     string          // of the user
	Service string          // namespace/name; "" for a Node
	Avoided bool            // the manager does not allocate the address, as it watches this use
}

// clusterDomain returns the routing domain of the network of the cluster: the configured
// one; without one the default routing domain, or the only one. Of several routing
// domains with names, none is known to be that of the cluster. The manager then avoids
// addresses in use in each of them, as it must not allocate such an address; a finding
// about each would be wrong about most. known is false too if no pool is in the
// configured one: then nothing is to be compared.
func clusterDomain(i *inventory.Inventory, configured *string) (domain string, known bool) {
	domains := i.Domains() // the default routing domain is the first
	switch {
	case configured != nil:
		return *configured, slices.Contains(domains, *configured)
	case len(domains) == 0 || len(domains) > 1 && domains[0] != "":
		return "", false
	}
	return domains[0], true
}

// usedIn returns the states of used addresses in each routing domain: routing domain ->
// segments in address order.
func usedIn(i *inventory.Inventory, uses []Use) map[string][]state.Segment {
	var used []allocator.Range
	for _, use := range uses {
		used = append(used, use.Address)
	}
	segments := map[string][]state.Segment{}
	for _, domain := range i.Domains() {
		segments[domain] = i.Segments(domain, used)
	}
	return segments
}

// segmentOf returns the segment with a used address.
func segmentOf(segments []state.Segment, use Use) state.Segment {
	return segments[sort.Search(len(segments), func(n int) bool { return !segments[n].Range.Last.Less(use.Address.First) })]
}

// CheckUses lists the used addresses that a pool in the routing domain of the cluster
// (clusterDomain) may allocate to a claim. An address that a claim of any routing domain
// owns is not reported: the claim may be that of the user.
func CheckUses(i *inventory.Inventory, configured *string, uses []Use) (list []Finding) {
	domain, known := clusterDomain(i, configured)
	pools := slices.DeleteFunc(i.Pools(), func(p *inventory.Pool) bool { return p.Domain != domain })
	segments := usedIn(i, uses)
	isOwned := func(use Use) bool {
		for _, in := range segments {
			if segmentOf(in, use).State == state.SegmentOwned {
				return true
			}
		}
		return false
	}
	for _, use := range uses {
		if use.Avoided || !known || segmentOf(segments[domain], use).State != state.SegmentFree || isOwned(use) {
			continue
		}
		offers := func(p *inventory.Pool) bool { return slices.ContainsFunc(p.Ranges, use.Address.Overlaps) }
		if n := slices.IndexFunc(pools, offers); n >= 0 {
			list = append(list, use.newFinding(pools[n].Key, "reserve the address in the pool, or create a claim that requests it", "%s uses %s, which is free and offered by %s"))
		}
	}
	SortFindings(list)
	return list
}

// newFinding returns a finding about an address in use. format takes the user, the
// address, and the title of the pool or claim.
func (u Use) newFinding(k inventory.Key, remedy, format string) Finding {
	f := newFinding(UsedAddress, []inventory.Key{k}, remedy, format, u.By, u.Address, inventory.TitleOf(k))
	f.user = u.UID + " " + u.Address.String()
	return f
}

// CheckOwnedUses lists the used addresses that a claim of another user owns in the
// routing domain of the cluster. Each entry of handed has the addresses of an
// IPAddressPool by which MetalLB of the cluster assigns addresses to Services. The user
// of an address is the user of the claim in these cases:
//
//	a Node uses the address        and the claim is not for a virtual address: the claim is for nodes or machines
//	a Service uses the address     and the claim is the ProxyVIP of the Service, or a ProxyVIP of no Service
//	a Service uses the address     and the claim owns all addresses of an IPAddressPool that has the address
//
// An address that a claim of the user owns in any routing domain is not reported.
func CheckOwnedUses(i *inventory.Inventory, configured *string, uses []Use, handed [][]allocator.Range) (list []Finding) {
	domain, known := clusterDomain(i, configured)
	segments := usedIn(i, uses)
	for _, use := range uses {
		var other *inventory.Claim // in the routing domain of the cluster
		accounted := false
		for in := range segments {
			g := segmentOf(segments[in], use)
			c := i.Claim(g.Object)
			switch {
			case c == nil || g.State != state.SegmentOwned:
			case isUserOf(c, use, handed):
				accounted = true
			case known && in == domain:
				other = c
			}
		}
		if other != nil && !accounted {
			list = append(list, use.newFinding(other.Key, "give one of the two users another address", "%s uses %s, which %s owns for another user"))
		}
	}
	SortFindings(list)
	return list
}

// isUserOf reports whether the user of an address is the user of the claim that owns the
// address.
func isUserOf(c *inventory.Claim, use Use, handed [][]allocator.Range) bool {
	switch {
	case use.Service == "":
		return c.Purpose != inventory.PurposeVIP
	case c.Purpose == inventory.PurposeVIP:
		return !strings.HasPrefix(c.Key.Name, "svc-") || c.Key.Name == "svc-"+strings.Replace(use.Service, "/", ".", 1)
	}
	return slices.ContainsFunc(handed, func(pool []allocator.Range) bool {
		return slices.ContainsFunc(pool, use.Address.Overlaps) && len(allocator.Subtract(pool, c.Ranges)) == 0
	})
}

// Network is a network of the Services or the Pods of the cluster.
type Network struct {
	Name  string // "the Services"
	Range allocator.Range
}

// CheckNetworks lists the pools in the routing domain of the cluster that offer addresses
// of a network of the cluster. Reserved addresses do not count as offered.
func CheckNetworks(i *inventory.Inventory, configured *string, networks []Network) (list []Finding) {
	domain, known := clusterDomain(i, configured)
	for _, p := range i.Pools() {
		if p.Domain != domain || !known {
			continue
		}
		for _, network := range networks {
			var common []allocator.Range
			for _, r := range p.Ranges {
				if r.Overlaps(network.Range) {
					common = append(common, r.Intersect(network.Range))
				}
			}
			isOffered := func(g state.Segment) bool { return g.State != state.SegmentReserved }
			if slices.ContainsFunc(i.Segments(p.Domain, common), isOffered) {
				list = append(list, newFinding(ClusterNetwork, []inventory.Key{p.Key}, "use another network for the pool, or reserve these addresses in it",
					"%s offers %s, which %s of this cluster use: %s", inventory.TitleOf(p.Key), formatRanges(common), network.Name, network.Range.Text()))
			}
		}
	}
	SortFindings(list)
	return list
}

// CheckMovedRecords lists the records of moved ranges that cannot be read. The records
// are ConfigMaps with label poolrecord.LabelMoved.
func CheckMovedRecords(maps []corev1.ConfigMap) (list []Finding) {
	for n := range maps {
		if pool, _, err := poolrecord.ReadMoved(&maps[n]); err != nil {
			what := "a pool"
			if pool != (inventory.Key{}) {
				what = inventory.TitleOf(pool)
			}
			name := maps[n].Namespace + "/" + maps[n].Name
			list = append(list, newFinding(MovedRecordUnreadable, nil,
				fmt.Sprintf("correct it, or kubectl delete -n %s configmap %s, if none of its ranges is in use in another cluster", maps[n].Namespace, maps[n].Name),
				"ConfigMap %s, the record of ranges of %s that moved to other clusters, cannot be read, and the pool allocates nothing: %v", name, what, err))
		}
	}
	SortFindings(list)
	return list
}
