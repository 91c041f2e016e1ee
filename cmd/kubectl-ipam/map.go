package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

const (
	mapWidth  = 32 // signs in a row
	mapBits   = 10 // binary logarithm of the bound of the signs of a map
	groupSize = 8  // signs between two blanks
	// gridLimit is the largest shift with which a map is a grid by default. A sign of a
	// grid has 1<<shift addresses.
	gridLimit = 3
)

func (a *app) newMap() *cobra.Command {
	var in, tenant string
	var ranges, grid bool
	cmd := &cobra.Command{
		Use: "map POOL", Short: "Draw the addresses of a pool", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Long: `Draw the addresses of a pool: one sign for an address, or for several consecutive addresses of a large pool. The signs are kinds of owners.

IPv6 pools, and pools of more than 8,192 addresses, are drawn as a list of ranges: use --in to look at a part, or --grid, which draws the smallest part that
contains all addresses that are neither free nor reserved.`,
		Example: `  kubectl ipam map vlan40
  kubectl ipam map vlan40 --in 10.40.2.0/24
  kubectl ipam map vlan40 --ranges -o wide
  kubectl ipam map vlan40 --tenant team-1/web`,
		RunE: func(cmd *cobra.Command, args []string) error {
			i, p, err := a.loadPool(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := checkTenant(i, tenant); err != nil {
				return err
			}
			network, offered, err := mapNetwork(p, in)
			if err != nil {
				return err
			}
			others := otherNetworks(p, in)
			segments := i.Segments(p.Domain, offered)
			shown := report.NetworkText(network)
			if a.output != "table" && a.output != "wide" || ranges || !grid && (network.First.Is6() || shiftFor(network) > gridLimit) || tenant != "" {
				return a.printRanges(i, p, network, segments, tenant, others)
			}
			if part := gridStart(i, p, network); in == "" && part != network {
				shown = fmt.Sprintf("%s of %s (another part: --in RANGE)", report.NetworkText(part), shown)
				network, segments = part, i.Segments(p.Domain, report.Offered(p, part))
			}
			return a.printGrid(i, p, network, shown, segments, others)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&in, "in", "", "only this `range` or network")
	flags.StringVar(&tenant, "tenant", "", "only the ranges of this tenant, as `namespace/name`")
	flags.BoolVar(&ranges, "ranges", false, "list ranges instead of a grid")
	flags.BoolVar(&grid, "grid", false, "draw a grid, however many addresses a sign has")
	cmd.MarkFlagsMutuallyExclusive("ranges", "grid")
	_ = cmd.RegisterFlagCompletionFunc("tenant", a.completeBy(tenantNamesOf, false))
	return cmd
}

// mapNetwork returns the network of a map, and the ranges that the pool offers in the
// network. Without --in, this is the first network of the pool.
func mapNetwork(p *inventory.Pool, in string) (network allocator.Range, offered []allocator.Range, err error) {
	if len(p.Ranges) == 0 {
		return network, nil, fmt.Errorf("pool %s offers no address", inventory.NameOf(p.Key))
	}
	network = p.Networks()[0]
	if in != "" {
		if network, err = allocator.ParseRange(in); err != nil {
			return network, nil, fmt.Errorf("--in: %w", err)
		}
	}
	if offered = report.Offered(p, network); len(offered) == 0 {
		return network, nil, fmt.Errorf("--in=%s: pool %s offers %s", in, inventory.NameOf(p.Key), report.Listed(report.NetworkTexts(p.Ranges), 3))
	}
	return network, offered, nil
}

// otherNetworks returns the networks of a pool that a map without --in does not show;
// none with --in.
func otherNetworks(p *inventory.Pool, in string) []string {
	if in != "" {
		return nil
	}
	return report.NetworkTexts(p.Networks()[1:])
}

// otherNetworksLine describes the networks that a map does not show; "" without such
// networks.
func otherNetworksLine(others []string) string {
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("not shown: %s, which the pool offers too (--in %s)", report.Listed(others, 3), others[0])
}

// gridStart returns the part of a network that a grid shows without --in:
//
//   - the network, if its grid has at most 1<<gridLimit addresses per sign
//   - otherwise the smallest part with every address that is neither free nor reserved,
//     but at least 1<<mapBits addresses
func gridStart(i *inventory.Inventory, p *inventory.Pool, network allocator.Range) allocator.Range {
	if shiftFor(network) <= gridLimit {
		return network
	}
	start, _ := i.Start(p, network).Prefix()
	return allocator.RangeOfPrefix(netip.PrefixFrom(start.Addr(), min(start.Bits(), start.Addr().BitLen()-mapBits)))
}

// shiftFor returns the binary logarithm of the number of addresses per sign.
func shiftFor(network allocator.Range) int { return inventory.ShiftFor(network, mapBits) }

func (a *app) printGrid(i *inventory.Inventory, p *inventory.Pool, network allocator.Range, shown string, segments []state.Segment, others []string) error {
	shift := shiftFor(network)
	squares := i.Grid(p, network, shift)
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s\n", headline(i, p, shown, segments), oneSignIs(shift))
	if line := otherNetworksLine(others); line != "" {
		fmt.Fprintln(&text, line)
	}
	width, previous, repeated := 0, "", 0
	if network.First.Is4() {
		width = len(network.Last.String())
	}
	for n := 0; n < len(squares); n += mapWidth {
		width = max(width, len(inventory.SquareAt(network.First, n, shift).String()))
	}
	flush := func() {
		if repeated > 0 {
			fmt.Fprintf(&text, "%*s  (%s like this)\n", width, "", allocator.Counted(repeated, "more row"))
		}
		repeated = 0
	}
	row := 0
	for signs := range slices.Chunk(squares, mapWidth) {
		first := inventory.SquareAt(network.First, row*mapWidth, shift)
		row++
		line := a.signs(signs)
		if row > 1 && line == previous {
			repeated++
			continue
		}
		flush()
		previous = line
		fmt.Fprintln(&text, strings.TrimRight(fmt.Sprintf("%*s  %s", width, first, line), " "))
	}
	flush()
	text.WriteString(a.legend(squares) + "\n")
	_, err := fmt.Fprint(a.out, text.String())
	return err
}

func oneSignIs(shift int) string {
	switch {
	case shift == 0:
		return "one sign is an address"
	case shift > 32:
		return fmt.Sprintf("one sign is 2^%d addresses", shift)
	}
	return fmt.Sprintf("one sign is %d addresses", int64(1)<<shift)
}

// headline returns the counts of the addresses of a map. shown is the text for the
// network.
func headline(i *inventory.Inventory, p *inventory.Pool, shown string, segments []state.Segment) string {
	parts := append([]string{shown}, report.Counts(segments)...)
	if u := i.Usage(p.Key); u.Granted > 0 && !i.KnowsGrants() {
		parts = append(parts, fmt.Sprintf("%d of the pool granted (shown as free: you may not read the journal)", u.Granted))
	}
	return strings.Join(parts, ", ")
}

// signs returns the signs of a row, in groups of groupSize.
func (a *app) signs(signs []inventory.Sign) string {
	var line strings.Builder
	for n, sign := range signs {
		if n > 0 && n%groupSize == 0 {
			line.WriteByte(' ')
		}
		line.WriteRune(rune(a.sign(sign)))
	}
	return strings.TrimRight(line.String(), " ")
}

func (a *app) sign(s inventory.Sign) inventory.Sign {
	if a.isTerminal() {
		return s
	}
	return s.ASCII()
}

// legend returns the meaning of each sign in a map.
func (a *app) legend(squares []inventory.Sign) string {
	var parts []string
	for _, m := range inventory.Meanings {
		if slices.Contains(squares, m.Sign) {
			sign := string(rune(a.sign(m.Sign)))
			if m.Sign == inventory.SignNotOffered {
				sign = "(blank)"
			}
			parts = append(parts, sign+" "+m.Meaning)
		}
	}
	return strings.Join(parts, "  ")
}

// printRanges prints a map as a list of ranges.
func (a *app) printRanges(i *inventory.Inventory, p *inventory.Pool, network allocator.Range, segments []state.Segment, tenant string, others []string) error {
	m := report.NewAddressMap(i, p, network)
	if (a.output == "csv" || a.output == "name") && len(others) > 0 { // a list has no place for the networks that it leaves out
		m, others = report.NewWholeMap(i, p), nil
	}
	m.OtherNetworks = others
	text := ""
	if tenant != "" {
		m = m.OfTenant(tenant)
		var addresses []allocator.Range
		for _, s := range m.Segments {
			addresses = append(addresses, s.Exact)
		}
		text = fmt.Sprintf("%s in %s: %s, %s %s", tenant, m.Network, allocator.Counted(len(m.Segments), "range"), allocator.AmountOf(addresses...), allocator.Plural(allocator.Total(addresses), "address"))
	} else {
		text = headline(i, p, m.Network, segments)
	}
	if a.output == "json" || a.output == "yaml" {
		return a.printDocument(m)
	}
	if line := otherNetworksLine(others); line != "" {
		text += "\n" + line
	}
	if a.output == "table" || a.output == "wide" {
		if _, err := fmt.Fprintln(a.out, text); err != nil {
			return err
		}
	}
	return segmentList(report.KindAddressMap, m.Segments, false).print(a)
}
