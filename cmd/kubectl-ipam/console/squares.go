package console

import (
	"fmt"
	"net/netip"
	"slices"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

const (
	squareBits = 11 // a map has at most 1<<squareBits squares
	rowBits    = 6  // a row of a map has at most 1<<rowBits squares
	pitch      = 13 // distance between the left edges of two squares, in pixels
	side       = 11 // width of a square, in pixels
	letter     = 7  // width of a letter of a label, in pixels
	// The band on the page of a pool has at most 1<<bandBits parts, a band on the page of
	// pools 1<<rowBandBits.
	bandBits, rowBandBits = 10, 8
)

// look is the appearance of a sign.
type look struct {
	Class, Meaning string
	Pattern        string // reference to a pattern; "" for a plain colour
}

// looks lists the look of each sign, in the order of a legend. Patterns distinguish signs
// for readers who do not see the colours.
var looks = func() (list []look) {
	classes := map[inventory.Sign]string{
		inventory.SignFree: "free", inventory.SignNodes: "nodes", inventory.SignLoadBalancer: "loadbalancer", inventory.SignVIP: "vip", inventory.SignMachine: "machine", inventory.SignOther: "other",
		inventory.SignSeveral: "several", inventory.SignPartly: "partly", inventory.SignReserved: "reserved", inventory.SignCooldown: "cooldown",
		inventory.SignGranted: "granted", inventory.SignMoved: "moved", inventory.SignConflict: "conflict", inventory.SignNotOffered: "outside",
	}
	plain := []inventory.Sign{inventory.SignFree, inventory.SignNodes, inventory.SignLoadBalancer, inventory.SignVIP, inventory.SignNotOffered}
	for _, m := range inventory.Meanings {
		l := look{Class: classes[m.Sign], Meaning: m.Meaning}
		if !slices.Contains(plain, m.Sign) {
			l.Pattern = "url(#" + l.Class + ")"
		}
		list = append(list, l)
	}
	return list
}()

func lookOf(s inventory.Sign) look {
	for n, m := range inventory.Meanings {
		if m.Sign == s {
			return looks[n]
		}
	}
	return look{Class: "outside"}
}

// run is a range of addresses with one state. A run is inside or outside the ranges that
// a pool offers.
type run struct {
	report.Segment
	look
	offered bool // offered by the pool of the page
}

// runsIn returns the runs of a network, in address order.
func runsIn(i *inventory.Inventory, p *inventory.Pool, network allocator.Range) (list []run) {
	offered := report.Offered(p, network)
	add := func(ranges []allocator.Range, offered bool) {
		for _, g := range i.Segments(p.Domain, ranges) {
			r := run{Segment: report.NewSegment(i, p.Domain, g), look: lookOf(i.SignOf(g)), offered: offered}
			if g.State == state.SegmentFree && !offered {
				r.State, r.look = report.StateNotOffered, lookOf(inventory.SignNotOffered)
			}
			list = append(list, r)
		}
	}
	add(offered, true)
	add(allocator.Subtract([]allocator.Range{network}, offered), false)
	slices.SortFunc(list, func(x, y run) int { return x.Exact.First.Compare(y.Exact.First) })
	return list
}

// text describes the state and the owner of a run.
func (r run) text() string {
	text := r.Summary()
	if r.Tenant != "" {
		text += " for " + r.Tenant
	}
	if len(r.Rivals) > 0 {
		text = "conflict: " + text
		for _, rival := range r.Rivals {
			text += ", also named by " + rival.String()
		}
	}
	return text
}

// square is a square of a map.
type square struct {
	look
	X, Y  int
	Title string
	Link  string
}

// label is the first address of a row.
type label struct {
	Y    int
	Text string
}

// squares is a map of a network.
type squares struct {
	Width, Height int
	Labels        []label
	Squares       []square
	Each          string // size of a square, in words
	Count         int
}

// depthOf returns the binary logarithm of the number of squares of a network, at most
// most.
func depthOf(network netip.Prefix, most int) int {
	return min(most, network.Addr().BitLen()-network.Bits())
}

// part divides a network into 1<<depth parts and returns part n.
func part(network netip.Prefix, depth, n int) netip.Prefix {
	address, bits := network.Addr().AsSlice(), network.Bits()+depth
	for k := range depth {
		if n>>k&1 == 1 {
			at := bits - 1 - k
			address[at/8] |= 0x80 >> (at % 8)
		}
	}
	first, _ := netip.AddrFromSlice(address)
	return netip.PrefixFrom(first, bits)
}

// zoomed returns the network of the page to which a square links: the network of the
// square, but at least a row of addresses.
func zoomed(square netip.Prefix) netip.Prefix {
	wider, err := square.Addr().Prefix(min(square.Bits(), square.Addr().BitLen()-rowBits))
	if err != nil {
		return square
	}
	return wider
}

// newSquares draws a network. runs cover the whole network.
func newSquares(i *inventory.Inventory, p *inventory.Pool, network netip.Prefix, runs []run) squares {
	depth := depthOf(network, squareBits)
	whole := allocator.RangeOfPrefix(network)
	signs := i.Grid(p, whole, network.Addr().BitLen()-network.Bits()-depth)
	m := squares{Each: eachIs(part(network, depth, 0)), Count: len(signs)}
	longest, at := 0, 0
	for n, sign := range signs {
		of := part(network, depth, n)
		area := allocator.RangeOfPrefix(of)
		for at+1 < len(runs) && runs[at].Exact.Last.Less(area.First) {
			at++
		}
		end := at + 1
		for end < len(runs) && !area.Last.Less(runs[end].Exact.First) {
			end++
		}
		s := square{look: lookOf(sign), X: n % (1 << rowBits) * pitch, Y: n >> rowBits * pitch}
		switch {
		case area.First == area.Last:
			s.Title = area.String() + " " + runs[at].text()
			s.Link = link("/address", "address", area.String())
		case end == at+1:
			s.Title = of.String() + " " + runs[at].text()
		default:
			s.Title = fmt.Sprintf("%s %s, in %d ranges", of, s.Meaning, end-at)
		}
		if s.Link == "" {
			s.Link = link("/pool", "pool", poolName(p), "in", zoomed(of))
		}
		if n%(1<<rowBits) == 0 {
			text := area.First.String()
			longest = max(longest, len(text))
			m.Labels = append(m.Labels, label{n>>rowBits*pitch + side - 1, text})
		}
		m.Squares = append(m.Squares, s)
	}
	left := longest*letter + pitch
	for n := range m.Squares {
		m.Squares[n].X += left
	}
	m.Width, m.Height = left+(pitch<<rowBits), len(m.Labels)*pitch
	return m
}

// eachIs describes the size of a square.
func eachIs(square netip.Prefix) string {
	switch host := square.Addr().BitLen() - square.Bits(); {
	case host == 0:
		return "1 address"
	case host < 20:
		return fmt.Sprintf("a /%d (%d)", square.Bits(), 1<<host)
	default:
		return fmt.Sprintf("a /%d (2^%d)", square.Bits(), host)
	}
}

// stripe is a part of a band.
type stripe struct {
	look
	X, Width int
	Title    string
}

// band shows a network as one line. The width of a stripe is proportional to the number
// of addresses.
type band struct {
	Width   int
	Stripes []stripe
	Title   string
}

// newBand draws a network as a line of 1<<bits units.
func newBand(i *inventory.Inventory, p *inventory.Pool, network netip.Prefix, bits int) band {
	depth := depthOf(network, bits)
	signs := i.Grid(p, allocator.RangeOfPrefix(network), network.Addr().BitLen()-network.Bits()-depth)
	unit := 1 << (bits - depth)
	b := band{Width: 1 << bits, Title: "Addresses of " + network.String() + " in order"}
	for n := 0; n < len(signs); {
		end := n
		for end < len(signs) && signs[end] == signs[n] {
			end++
		}
		area := allocator.Range{First: part(network, depth, n).Addr(), Last: allocator.RangeOfPrefix(part(network, depth, end-1)).Last}
		s := stripe{look: lookOf(signs[n]), X: n * unit, Width: (end - n) * unit}
		s.Title = area.String() + " " + s.Meaning
		b.Stripes = append(b.Stripes, s)
		n = end
	}
	return b
}

// crumb is a link in the path from the network of a pool to the network on the page.
type crumb struct {
	Text, Link string
	Present    bool
}

// crumbsOf returns the path from the network of a pool to a network inside, with the
// steps of the links of the maps.
func crumbsOf(p *inventory.Pool, top, network netip.Prefix) (list []crumb) {
	add := func(n netip.Prefix) {
		list = append(list, crumb{n.String(), link("/pool", "pool", poolName(p), "in", n), n == network})
	}
	add(top)
	limit := network.Addr().BitLen() - rowBits
	for bits := min(top.Bits()+squareBits, limit); bits < network.Bits() && bits > top.Bits(); bits = min(bits+squareBits, limit) {
		step, _ := network.Addr().Prefix(bits)
		add(step)
		if bits == limit {
			break
		}
	}
	if network != top {
		add(network)
	}
	return list
}

// networkFor returns the smallest network that contains ranges.
func networkFor(ranges ...allocator.Range) netip.Prefix {
	network, _ := inventory.Enclosing(ranges).Prefix()
	return network
}
