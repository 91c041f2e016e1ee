package exchange

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

const (
	documentVersion = "kubectl-ipam.butlerlabs.dev/v1"
	documentKind    = "AddressList"
)

// Document is an exported pool as YAML.
type Document struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Items      []Entry `json:"items"`
}

// Entry is a claim, or a reservation, of an exported pool.
type Entry struct {
	Kind        Kind   `json:"kind"`
	Name        string `json:"name,omitempty"`
	Ranges      string `json:"ranges"` // addresses, ranges or a network, separated by spaces
	Tenant      string `json:"tenant,omitempty"`
	Type        string `json:"type,omitempty"`
	Team        string `json:"team,omitempty"`
	Mode        string `json:"mode,omitempty"`
	Ports       string `json:"ports,omitempty"`
	Description string `json:"description,omitempty"`
}

// entryColumns is the header of an exported CSV file.
var entryColumns = []string{"kind", "name", "ranges", "tenant", "type", "team", "mode", "ports", "description"}

func (e Entry) cells() []string {
	return []string{string(e.Kind), e.Name, e.Ranges, e.Tenant, e.Type, e.Team, e.Mode, e.Ports, e.Description}
}

// WriteCSV writes entries as a CSV file that Read reads.
func WriteCSV(w io.Writer, entries []Entry) error {
	out := csv.NewWriter(w)
	if err := out.Write(entryColumns); err != nil {
		return err
	}
	for _, e := range entries {
		if err := out.Write(e.cells()); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// WriteYAML writes entries as a YAML file that Read reads.
func WriteYAML(w io.Writer, entries []Entry) error {
	text, err := yaml.Marshal(Document{documentVersion, documentKind, append([]Entry{}, entries...)})
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// claimKinds are the kinds of exported claims.
var claimKinds = map[string]Kind{
	butler.ResourceIPAllocation: KindIPAllocation, metal3.ResourceIPClaim: KindIPClaim, clusterapi.ResourceIPAddressClaim: KindIPAddressClaim,
	novaedge.ResourceProxyVIP: KindProxyVIP,
}

// Export returns the reservations of a pool, and its claims in address order. leftOut describes what an export cannot contain, one line each.
func Export(i *inventory.Inventory, p *inventory.Pool) (entries []Entry, leftOut []string) {
	switch o := p.Object.(type) {
	case *butlerv1.NetworkPool:
		for _, reserved := range o.Spec.Reserved {
			network, err := netip.ParsePrefix(reserved.CIDR)
			if err != nil {
				leftOut = append(leftOut, fmt.Sprintf("the reserved network %q, which is not valid", reserved.CIDR))
				continue
			}
			entries = append(entries, Entry{Kind: KindReserved, Ranges: network.Masked().String(), Description: cleanText(reserved.Description)})
		}
	case *metal3v1.IPPool:
		entries = exportPreAllocations(o)
	}
	reasons := map[string]int{}
	for _, c := range i.Claims() {
		if c.Pool != p.Key {
			continue
		}
		kind := claimKinds[c.Key.Resource]
		switch {
		case c.State == inventory.ClaimPending:
			reasons["without addresses"]++
			continue
		case c.State == inventory.ClaimConflict:
			reasons["that lost an address conflict"]++
			continue
		case c.State == inventory.ClaimDeleting:
			reasons["that are being deleted"]++
			continue
		case kind == KindProxyVIP && c.Tenant != "":
			reasons["of Services, which request their addresses themselves"]++
			continue
		}
		e := Entry{Kind: kind, Name: c.Key.Name, Tenant: c.Tenant, Team: c.Team, Description: cleanText(c.Description)}
		var ranges, ports []string
		for _, r := range c.Ranges {
			ranges = append(ranges, r.String())
		}
		for _, port := range c.Ports {
			ports = append(ports, fmt.Sprint(port))
		}
		e.Ranges, e.Mode, e.Ports = strings.Join(ranges, " "), string(c.Mode), strings.Join(ports, " ")
		switch kind {
		case KindIPAllocation:
			e.Type = string(c.Purpose)
		case KindIPClaim, KindIPAddressClaim: // the Cluster lies in the namespace of the claim
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

// exportPreAllocations returns the entries of spec.preAllocations, by address and name.
func exportPreAllocations(p *metal3v1.IPPool) (entries []Entry) {
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
		entries = append(entries, Entry{Kind: KindPreAllocation, Name: kept.name, Ranges: kept.address.String()})
	}
	return entries
}

// cleanText returns a description with the line breaks that a CSV file keeps. A description that is too long for Read is cut.
func cleanText(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	if len(text) > MaxCell {
		text = strings.ToValidUTF8(text[:MaxCell-len("…")], "") + "…"
	}
	return text
}
