// Package exporter returns the addresses of a pool as the rows of an address file, see
// package addressfile. Package importer restores exported rows without loss.
//
//	pool ──▶ Export ──▶ addressfile.Entry …
//
// Every function is pure.
package exporter

import (
	"fmt"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Export returns the reservations of a pool, and after them the claims of the pool in
// address order. Each line of leftOut describes claims or reservations that are not
// exported: an import of these rows would fail, or would create objects that another
// component creates.
func Export(i *inventory.Inventory, p *inventory.Pool) (entries []addressfile.Entry, leftOut []string) {
	entries, leftOut = exportReservations(p)
	reasons, windows := map[string]int{}, p.Windows()
	for _, c := range i.Claims() {
		if c.Pool != p.Key {
			continue
		}
		if reason := whyLeftOut(i, c, windows); reason != "" {
			reasons[reason]++
			continue
		}
		e := addressfile.Entry{Kind: addressfile.Kind(inventory.KindOf(c.Key)), Name: c.Key.Name, Tenant: c.Tenant, Team: c.Team, Description: addressfile.CleanText(c.Description)}
		var ranges, ports []string
		for _, r := range c.Ranges {
			ranges = append(ranges, r.String())
		}
		for _, port := range c.Ports {
			ports = append(ports, fmt.Sprint(port))
		}
		e.Ranges, e.Mode, e.Ports = strings.Join(ranges, " "), string(c.Mode), strings.Join(ports, " ")
		switch c.Purpose {
		case inventory.PurposeNodes, inventory.PurposeLoadBalancer:
			e.Type = string(c.Purpose)
		case inventory.PurposeMachine: // the Cluster has the namespace of the claim
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
	case c.Purpose == inventory.PurposeVIP && c.Tenant != "":
		return "of Services, which request their addresses themselves"
	}
	return ""
}

// exportReservations returns the reservations in the spec of a pool, and a line for each
// that is not exported.
func exportReservations(p *inventory.Pool) (entries []addressfile.Entry, leftOut []string) {
	list := p.Kind.Reservations
	if list == nil {
		return nil, nil
	}
	reservations, invalid := list.List(p.Object)
	for _, text := range invalid {
		leftOut = append(leftOut, fmt.Sprintf("the reserved network %q, which is not valid", text))
	}
	for _, r := range reservations {
		e := addressfile.Entry{Kind: addressfile.KindReserved, Ranges: r.Range.Text(), Description: addressfile.CleanText(r.Description)}
		if list.Named {
			e.Kind, e.Name, e.Ranges = addressfile.KindPreAllocation, r.Name, r.Range.String()
		}
		entries = append(entries, e)
	}
	return entries, leftOut
}
