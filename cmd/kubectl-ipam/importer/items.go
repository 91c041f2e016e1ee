package importer

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// maxObjects bounds the items of kinds that have one address per object: claims of
// IPPools, and entries of spec.preAllocations.
const maxObjects = 49_152

// newItems returns the items of each row, not yet merged. Rows outside the pool are
// conflicts.
func (pl *planner) newItems() (items []*item, faults addressfile.Faults) {
	mentioned := pl.newMentions()
	for n := range pl.file.Records {
		r := &pl.file.Records[n]
		if mentioned != nil && isMention(r) {
			one := *r
			if one.Ranges = mentioned(r.Ranges); len(one.Ranges) == 0 {
				pl.Duplicates++
				continue
			}
			r = &one
		}
		more, problem := pl.itemsOf(r)
		if problem != "" {
			faults = append(faults, addressfile.Fault{Row: r.Row, Text: problem})
		}
		if items = append(items, more...); len(items) > maxObjects && !canMerge(items[len(items)-1].kind) {
			faults = append(faults, addressfile.Fault{Row: r.Row, Text: fmt.Sprintf("brings the number of addresses over %d: a %s has one address", maxObjects, items[len(items)-1].kind)})
			break
		}
	}
	return items, faults
}

// isMention reports whether another row of the file has precedence over a row with the
// same addresses.
func isMention(r *addressfile.Record) bool {
	return r.Mention && r.Tenant == "" && r.NotInUse == "" && r.LeftOut == ""
}

// newMentions returns a function that returns the addresses of a mention (isMention)
// which no other row has; nil if the file has no mention.
func (pl *planner) newMentions() func([]allocator.Range) []allocator.Range {
	var ranges []allocator.Range
	mentions := false
	for n := range pl.file.Records {
		switch r := &pl.file.Records[n]; {
		case isMention(r):
			mentions = true
		case r.NotInUse == "" && r.LeftOut == "" && !pl.isOfAnotherDomain(r):
			ranges = append(ranges, r.Ranges...)
		}
	}
	if !mentions {
		return nil
	}
	ranges = allocator.Union(ranges)
	overlaps := allocator.OverlapsAny(ranges)
	return func(of []allocator.Range) []allocator.Range {
		if !overlaps(of) {
			return of
		}
		return allocator.Subtract(of, ranges)
	}
}

// isOfAnotherDomain reports whether the addresses of a row are in another routing domain
// than the pool.
func (pl *planner) isOfAnotherDomain(r *addressfile.Record) bool {
	return r.HasDomain && pl.domainOf(r.Domain) != pl.Pool.Domain
}

// canMerge reports whether one object can have the addresses of several rows.
func canMerge(k addressfile.Kind) bool {
	return k == addressfile.KindReserved || k == addressfile.KindIPAllocation
}

// itemsOf returns the items of a row; none for a row that is left out or outside the
// pool. problem is the rule that the row breaks, with a remedy.
func (pl *planner) itemsOf(r *addressfile.Record) (items []*item, problem string) {
	switch {
	case r.NotInUse != "":
		pl.notInUse[r.NotInUse] = append(pl.notInUse[r.NotInUse], r.Row)
		return nil, ""
	case r.LeftOut != "":
		pl.leaveOut(r, "%s", r.LeftOut)
		return nil, ""
	}
	if pl.isOfAnotherDomain(r) {
		pl.leaveOut(r, "the VRF %q: the pool is in the routing domain %q; if both are one network, add --vrf-map %s", addressfile.Shorten(r.Domain), pl.Pool.Domain, addressfile.QuoteShell(addressfile.Shorten(r.Domain)+"="+pl.Pool.Domain))
		return nil, ""
	}
	tenant, mapped := pl.o.Tenants[r.Tenant]
	if !mapped {
		tenant = r.Tenant
	}
	kind, skip := pl.kindOf(r, tenant)
	if skip != "" {
		pl.leaveOut(r, "%s", skip)
		return nil, ""
	}
	if possible := possibleKinds(pl.Pool); !slices.Contains(possible, kind) {
		return nil, fmt.Sprintf("is %s, which a %s cannot have: only %s", kind, inventory.KindOf(pl.Pool.Key), addressfile.JoinKinds(possible))
	}
	if pl.isOutside(r, kind) {
		return nil, ""
	}
	it := item{kind: kind, team: r.Team, mode: r.Mode, ports: r.Ports, singles: r.Singles && r.Name == "", entry: kind == addressfile.KindReserved && r.Kind == addressfile.KindReserved}
	if r.Description != "" {
		it.descriptions = []string{r.Description}
	}
	if kind == r.Kind || r.Kind == "" && kind != addressfile.KindReserved {
		it.name = r.Name
	}
	if problem := pl.setOwner(&it, r, tenant); problem != "" {
		return nil, problem
	}
	return pl.expand(it, r)
}

// expand returns an item for each object that a row becomes. problem is the rule that the
// row breaks, with a remedy.
func (pl *planner) expand(it item, r *addressfile.Record) (items []*item, problem string) {
	switch total := allocator.Total(r.Ranges); {
	case it.kind == addressfile.KindProxyVIP:
		if it.name == "" {
			it.name = pl.deriveName(r.Ranges[0])
		}
		it.ranges = r.Ranges
		return []*item{it.withParts(r.Row)}, ""
	case canMerge(it.kind):
		if it.name != "" && len(r.Ranges) > 1 {
			return nil, fmt.Sprintf("has %d ranges, and an IPAllocation has one: write a row for each", len(r.Ranges))
		}
		for _, one := range r.Ranges {
			it.ranges = []allocator.Range{one}
			items = append(items, it.withParts(r.Row))
		}
		return items, ""
	case total > maxObjects:
		return nil, fmt.Sprintf("has more than %d addresses, and a %s has one", maxObjects, it.kind)
	case it.name != "" && total > 1:
		return nil, fmt.Sprintf("has several addresses, and %s %s has one", it.kind, it.name)
	}
	for _, several := range r.Ranges {
		for a := range several.Addresses() {
			one := it
			one.ranges = []allocator.Range{{First: a, Last: a}}
			if one.name == "" {
				one.name, one.derived = pl.deriveName(one.ranges[0]), true
				if one.kind == addressfile.KindPreAllocation {
					one.name = "_" + one.name // "_" is not allowed in names of claims: no claim gets the address
				}
			}
			items = append(items, one.withParts(r.Row))
		}
	}
	return items, ""
}

func (it item) withParts(row int) *item {
	it.ranges = slices.Clone(it.ranges)
	for _, r := range it.ranges {
		it.parts = append(it.parts, part{row, r})
	}
	return &it
}

func (pl *planner) leaveOut(r *addressfile.Record, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	pl.leftOut[reason] = append(pl.leftOut[reason], r.Row)
}

// domainOf returns the routing domain of a VRF: the mapping of the options, else "" for
// the VRFs "global" and "default", else the name of the VRF. Other address management
// tools use the names "global" and "default" for addresses without a VRF.
func (pl *planner) domainOf(vrf string) string {
	if domain, mapped := pl.o.Domains[vrf]; mapped {
		return domain
	}
	if lower := strings.ToLower(vrf); vrf != pl.Pool.Domain && (lower == "global" || lower == "default") {
		return ""
	}
	return vrf
}

// kindOf returns the kind that a row becomes, or the reason why the row is left out.
func (pl *planner) kindOf(r *addressfile.Record, tenant string) (k addressfile.Kind, skip string) {
	possible := possibleKinds(pl.Pool)
	switch {
	case pl.o.As == addressfile.KindIPAllocation && (r.Kind == addressfile.KindReserved || r.Reserved || tenant == ""):
		return "", "addresses that are reserved, or have no tenant: only allocations are imported"
	case pl.o.As != "":
		return pl.o.As, ""
	case r.Kind != "":
		return r.Kind, ""
	case possible[0] == addressfile.KindIPAllocation && (r.Reserved || tenant == ""):
		return addressfile.KindReserved, ""
	case possible[0] == addressfile.KindProxyVIP && r.Reserved:
		return "", "reserved addresses: a ProxyIPPool reserves nothing; leave the addresses out of spec.addresses and spec.cidrs"
	}
	return possible[0], ""
}

// setOwner sets the tenant, team and type of an item. problem is the rule that the row
// breaks, with a remedy.
func (pl *planner) setOwner(it *item, r *addressfile.Record, tenant string) (problem string) {
	switch it.kind {
	case addressfile.KindIPAllocation:
		if tenant == "" {
			return "is an IPAllocation, which needs a tenant: fill the cell, or name a tenant for rows without one with --tenant-map =NAMESPACE/NAME"
		}
		_, mapped := pl.o.Tenants[r.Tenant]
		if pl.o.SlugTenants && !mapped && !strings.Contains(tenant, "/") {
			if tenant, problem = pl.slugOf(tenant); problem != "" {
				pl.unresolved[r.Tenant] = true
				return problem
			}
		}
		if !strings.Contains(tenant, "/") && pl.o.TenantNamespace != "" {
			tenant = pl.o.TenantNamespace + "/" + tenant
		}
		if it.tenant, problem = parseTenant(tenant); problem != "" {
			pl.unresolved[r.Tenant] = true
			return fmt.Sprintf("has the tenant %q, %s: write --tenant-map %s", addressfile.Shorten(r.Tenant), problem, addressfile.QuoteShell(addressfile.Shorten(r.Tenant)+"=NAMESPACE/NAME"))
		}
		it.purpose, it.purposeGiven = butlerv1.IPAllocationType(r.Type), r.Type != ""
		if r.Type == "" {
			it.purpose = pl.o.Type
		}
		if it.purpose != butlerv1.TypeNodes && it.purpose != butlerv1.TypeLoadBalancer {
			return fmt.Sprintf("has the type %q: use nodes or loadbalancer", addressfile.Shorten(r.Type))
		}
		if rules := validation.IsValidLabelValue(it.team); len(rules) > 0 {
			return fmt.Sprintf("has the team %q: %s", addressfile.Shorten(it.team), rules[0])
		}
	case addressfile.KindIPClaim, addressfile.KindIPAddressClaim:
		if r.Kind == "" { // a tenant in the file of another tool is not a Cluster
			return ""
		}
		it.tenant = tenant
		if namespace, name, ok := strings.Cut(tenant, "/"); ok {
			if namespace != pl.Pool.Key.Namespace {
				return fmt.Sprintf("has the tenant %q: the Cluster of a claim lies in the namespace of the claim, %s", addressfile.Shorten(tenant), pl.Pool.Key.Namespace)
			}
			it.tenant = name
		}
		if rules := validation.IsValidLabelValue(it.tenant); len(rules) > 0 {
			return fmt.Sprintf("has the tenant %q, the name of a Cluster: %s", addressfile.Shorten(it.tenant), rules[0])
		}
	case addressfile.KindProxyVIP:
		if it.mode == "" || len(it.ports) == 0 {
			return "has no mode or no ports, which a ProxyVIP needs: add the columns mode (L2ARP, BGP or OSPF) and ports"
		}
	case addressfile.KindReserved:
		it.name, it.team = "", ""
	}
	return ""
}

// slugOf returns the name of an object for a tenant of the file. problem is the reason
// why the tenant has no name of its own, with a remedy.
func (pl *planner) slugOf(tenant string) (slug, problem string) {
	slug = addressfile.Slug(tenant)
	remedy := "write --tenant-map " + addressfile.QuoteShell(addressfile.Shorten(tenant)+"=NAMESPACE/NAME")
	if slug == "" {
		return "", fmt.Sprintf("has the tenant %q, which has no Latin letter and no digit for a name: %s", addressfile.Shorten(tenant), remedy)
	}
	if first, taken := pl.slugs[slug]; taken && first != tenant {
		return "", fmt.Sprintf("has the tenant %q, whose name would be %s, as that of the tenant %q: %s", addressfile.Shorten(tenant), slug, addressfile.Shorten(first), remedy)
	}
	pl.slugs[slug] = tenant
	return slug, ""
}

// parseTenant returns the text of a tenant if the text is namespace/name; otherwise the
// rule that the text breaks.
func parseTenant(text string) (tenant, problem string) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		return "", "which has no namespace"
	}
	if rules := validation.IsDNS1123Label(namespace); len(rules) > 0 {
		return "", fmt.Sprintf("whose namespace %q is no name of a namespace (at most 63 of a-z, 0-9 and '-')", addressfile.Shorten(namespace))
	}
	if rules := validation.IsDNS1123Subdomain(name); len(rules) > 0 {
		return "", fmt.Sprintf("whose name %q is no name of an object (at most 253 of a-z, 0-9, '-' and '.')", addressfile.Shorten(name))
	}
	return text, ""
}

// isOutside reports whether a row has a range outside the pool, and records the row as a
// conflict or as left out.
func (pl *planner) isOutside(r *addressfile.Record, kind addressfile.Kind) bool {
	where, allowed, overlaps := "the pool", pl.windows, pl.overlapsWindows
	if kind == addressfile.KindReserved {
		where, allowed, overlaps = "spec.cidr of the pool", pl.network, pl.overlapsNetwork
	}
	for _, one := range r.Ranges {
		if allocator.CoversIn(allowed, one) {
			continue
		}
		switch {
		case overlaps([]allocator.Range{one}) && len(allocator.Subtract([]allocator.Range{one}, allowed)) > 0:
			outside := allocator.Subtract([]allocator.Range{one}, allowed)
			pl.addConflict(ConflictOutside, []int{r.Row}, "%s of %s is outside %s: %s", rangesText(outside), one, where, rangesText(firstRanges(allowed)))
		case overlaps([]allocator.Range{one}):
			pl.addConflict(ConflictOutside, []int{r.Row}, "%s is not in one range of %s: %s", one, where, rangesText(firstRanges(allowed)))
		case pl.o.SkipOutside && !overlaps(r.Ranges):
			pl.leaveOut(r, "addresses outside %s", where)
		default:
			why := ""
			if pl.o.SkipOutside {
				why = " (other addresses of the row are inside: write a row for each)"
			} else if kind != addressfile.KindReserved && allocator.CoversIn(pl.network, one) {
				why = " (inside spec.cidr, but in no range of spec.tenantAllocation)"
			}
			pl.addConflict(ConflictOutside, []int{r.Row}, "%s is outside %s%s: %s", one, where, why, rangesText(firstRanges(allowed)))
		}
		return true
	}
	return false
}

// groupFaults returns one fault for each distinct text: the fault of the first row with
// the text, plus the number of further rows.
func groupFaults(faults addressfile.Faults) (grouped addressfile.Faults) {
	rows := map[string]int{}
	for _, f := range faults {
		if rows[f.Text]++; rows[f.Text] == 1 {
			grouped = append(grouped, f)
		}
	}
	for n, f := range grouped {
		if more := rows[f.Text] - 1; more > 0 {
			grouped[n].Text += fmt.Sprintf(" (and %s)", allocator.Counted(more, "row")+" more")
		}
	}
	return grouped
}

// firstRanges returns the first 4 ranges, for messages.
func firstRanges(ranges []allocator.Range) []allocator.Range { return ranges[:min(len(ranges), 4)] }

// deriveName returns the name of a claim of the pool with a range: pool-10-40-1-60, or
// pool-10-40-1-60-to-10-40-1-63. IPv6 addresses are written in full.
func (pl *planner) deriveName(r allocator.Range) string {
	text := r.First.StringExpanded()
	if r.First != r.Last {
		text += "-to-" + r.Last.StringExpanded()
	}
	return pl.Pool.Key.Name + "-" + strings.NewReplacer(".", "-", ":", "-").Replace(text)
}

// resourceOf returns the resource of the claims of a kind; "" for the kinds of
// reservations.
func resourceOf(k addressfile.Kind) string {
	for _, kind := range kinds.All {
		if kind.Name == string(k) {
			return kind.Resource
		}
	}
	return ""
}

// keyOf returns the key of the claim that an item becomes. A claim has the namespace of
// the pool.
func (pl *planner) keyOf(it *item) inventory.Key {
	name := it.name
	if name == "" {
		name = pl.deriveName(it.ranges[0])
	}
	return inventory.Key{Resource: resourceOf(it.kind), Namespace: pl.Pool.Key.Namespace, Name: name}
}
