// Package exporter returns the addresses of a pool as the rows of an address file, see
// package addressfile. Package importer restores exported rows without loss.
//
//	pool ──▶ Export ──▶ addressfile.Entry …
//
// Every function is pure.
package exporter

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Export returns the reservations of a pool, and after them the claims of the pool in
// address order. Each line of leftOut describes claims or reservations that are not
// exported: an import of these rows would fail, or would create objects that another
// component creates.
func Export(i *inventory.Inventory, p *inventory.Pool) (entries []addressfile.Entry, leftOut []string) {
	switch o := p.Object.(type) {
	case *butlerv1.NetworkPool:
		for _, reserved := range o.Spec.Reserved {
			network, err := netip.ParsePrefix(reserved.CIDR)
			if err != nil {
				leftOut = append(leftOut, fmt.Sprintf("the reserved network %q, which is not valid", reserved.CIDR))
				continue
			}
			entries = append(entries, addressfile.Entry{Kind: addressfile.KindReserved, Ranges: network.Masked().String(), Description: addressfile.CleanText(reserved.Description)})
		}
	case *metal3v1.IPPool:
		entries = exportPreAllocations(o)
	}
	reasons, windows := map[string]int{}, p.Windows()
	for _, c := range i.Claims() {
		if c.Pool != p.Key {
			continue
		}
		kind := addressfile.Kind(kinds.NameOf(c.Key))
		if reason := whyLeftOut(i, c, windows); reason != "" {
			reasons[reason]++
			continue
		}
		e := addressfile.Entry{Kind: kind, Name: c.Key.Name, Tenant: c.Tenant, Team: c.Team, Description: addressfile.CleanText(c.Description)}
		var ranges, ports []string
		for _, r := range c.Ranges {
			ranges = append(ranges, r.String())
		}
		for _, port := range c.Ports {
			ports = append(ports, fmt.Sprint(port))
		}
		e.Ranges, e.Mode, e.Ports = strings.Join(ranges, " "), string(c.Mode), strings.Join(ports, " ")
		switch kind {
		case addressfile.KindIPAllocation:
			e.Type = string(c.Purpose)
		case addressfile.KindIPClaim, addressfile.KindIPAddressClaim: // the Cluster has the namespace of the claim
			_, e.Tenant, _ = strings.Cut(c.Tenant, "/")
		}
		entries = append(entries, e)
	}
	for reason, n := range reasons {
		leftOut = append(leftOut, allocator.Counted(n, "claim")+" "+reason)
	}
	slices.Sort(leftOut)
	return entries, leftOut
}

// whyLeftOut returns the reason to leave a claim of a pool out of an export, for one or
// several claims; "" for an exported claim. windows are the ranges of the pool. The state
// machine decides whether the claim owns the addresses in the claim, because the status
// may be older than the pool.
func whyLeftOut(i *inventory.Inventory, c *inventory.Claim, windows []allocator.Range) string {
	o := i.OwnershipOf(c.UID)
	switch {
	case c.State == inventory.ClaimDeleting:
		return "being deleted"
	case len(c.Ranges) == 0:
		return "without addresses"
	case o.Conflict != nil:
		return "that lost an address conflict"
	case !o.Allocated:
		return "without ownership of the named addresses: kubectl ipam check shows the reason"
	case slices.ContainsFunc(c.Ranges, func(r allocator.Range) bool { return !allocator.CoversIn(windows, r) }): // offered by an earlier version of the pool, or allocated by count across two adjacent ranges
		return "with addresses that are not in one range of the pool, which import denies"
	case kinds.NameOf(c.Key) == string(addressfile.KindProxyVIP) && c.Tenant != "":
		return "of Services, which request their addresses themselves"
	}
	return ""
}

// exportPreAllocations returns the entries of spec.preAllocations, ordered by address and
// name.
func exportPreAllocations(p *metal3v1.IPPool) (entries []addressfile.Entry) {
	type preAllocation struct {
		name    string
		address netip.Addr
	}
	var list []preAllocation
	for name, text := range p.Spec.PreAllocations {
		if a, err := netip.ParseAddr(string(text)); err == nil {
			list = append(list, preAllocation{name, a})
		}
	}
	slices.SortFunc(list, func(x, y preAllocation) int { return cmp.Or(x.address.Compare(y.address), cmp.Compare(x.name, y.name)) })
	for _, kept := range list {
		entries = append(entries, addressfile.Entry{Kind: addressfile.KindPreAllocation, Name: kept.name, Ranges: kept.address.String()})
	}
	return entries
}
