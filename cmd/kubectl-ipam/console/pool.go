package console

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

const (
	pageRows = 200 // rows of a list on a page
	someRows = 20  // rows of a short list
)

// poolPage is the data of the page of a pool.
type poolPage struct {
	poolRow
	Name      string // value "pool" of a query
	In        string // the network on the page
	IPv6      bool
	Each      string
	Facts     []string // counts of the offered addresses of In
	Crumbs    []crumb
	Networks  []crumb // links to the networks of the pool, for a pool with several networks
	Band      band
	Map       squares
	Legend    []look
	Rows      []listRow
	Pages     pager
	Pending   short[report.Claim]
	Cooldowns short[run]
	Releases  short[report.Release]
	Condition []metav1.Condition
	Events    *eventList // nil if the console has no events
	Change    changeForm
	Size      sizeForm
}

// short contains the first rows of a list.
type short[T any] struct {
	Items  []T
	Others int
	Link   string // address of the page with every row; "" without a page
}

func shorten[T any](items []T, link string) short[T] {
	n := min(len(items), someRows)
	return short[T]{items[:n], len(items) - n, link}
}

// listRow is a row of the range list.
type listRow struct {
	run
	SizeText string
	Text     string // state in words
	Link     string
	Claim    string // manifest of a claim of the first address of a free range; "" for other ranges
}

// pager is the position in a list of several pages.
type pager struct {
	Page, Pages, Items int
	Previous, Next     string
}

// pageOf returns the rows of a list on the page that the query selects.
func pageOf[T any](r *request, items []T, path string, pairs ...any) ([]T, pager, error) {
	p := pager{Page: 1, Pages: max(1, (len(items)+pageRows-1)/pageRows), Items: len(items)}
	if text := r.value("page"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > p.Pages {
			return nil, p, badRequest("page=%.100s: use a number from 1 to %d", text, p.Pages)
		}
		p.Page = n
	}
	if p.Page > 1 {
		p.Previous = link(path, append(pairs, "page", p.Page-1)...)
	}
	if p.Page < p.Pages {
		p.Next = link(path, append(pairs, "page", p.Page+1)...)
	}
	return items[min(len(items), (p.Page-1)*pageRows):min(len(items), p.Page*pageRows)], p, nil
}

// networkOf returns a network of a pool, see inventory.Pool.Networks, and the part of the
// network that the query selects. The pool may offer nothing of the part. The networks
// are not valid if the pool offers no addresses.
func (r *request) networkOf(p *inventory.Pool) (top, network netip.Prefix, err error) {
	all := p.Networks()
	if len(all) == 0 {
		return top, network, nil
	}
	in := r.value("in")
	if in == "" {
		top = networkFor(all[0])
		return top, top, nil
	}
	part, err := allocator.ParseRange(in)
	if err != nil {
		return top, network, badRequest("in: %v", err)
	}
	for _, of := range all {
		if top = networkFor(of); allocator.RangeOfPrefix(top).Overlaps(part) {
			network = networkFor(part)
			if network.Bits() < top.Bits() {
				network = top
			}
			return top, network, nil
		}
	}
	return top, network, badRequest("in=%.100s: pool %s offers %s", in, inventory.NameOf(p.Key), report.Listed(report.NetworkTexts(p.Ranges), 3))
}

// startOf returns the network on the page of a pool without the value "in". For IPv4 this
// is the network of the pool; for IPv6 the part at which a map starts, but at least a row
// of the map.
func (r *request) startOf(p *inventory.Pool, top netip.Prefix) netip.Prefix {
	if top.Addr().Is4() {
		return top
	}
	if start := zoomed(networkFor(r.Start(p, allocator.RangeOfPrefix(top)))); start.Bits() > top.Bits() {
		return start
	}
	return top
}

// pool serves the page of a pool.
func (r *request) pool() (*answer, error) {
	p, err := r.findPool()
	if err != nil {
		return nil, err
	}
	top, network, err := r.networkOf(p)
	if err != nil {
		return nil, err
	}
	if r.format != formatHTML {
		return r.rangesOf(p, network), nil
	}
	if top.IsValid() && r.value("in") == "" {
		network = r.startOf(p, top)
	}
	item := report.NewPool(r.Inventory, p)
	page := poolPage{
		poolRow: poolRow{
			Pool: item, SizeText: allocator.Amount(item.Size, item.Exact.Total), FreeText: allocator.Amount(item.Free, item.Exact.Available),
			LargestText: allocator.Amount(item.LargestFree, item.Exact.LargestFree), Fits: r.fitsText(p),
		},
		Name: poolName(p), Legend: looks, Condition: p.Description.Conditions, Size: sizeForm{Pool: poolName(p)},
	}
	if pool, err := inventory.NetworkPoolOf(p); err == nil {
		page.Change = changeForm{Pool: page.Name, Offered: true, Reserved: reservedOf(pool)}
	}
	var pending []report.Claim
	for _, c := range r.Claims() {
		if c.Pool == p.Key && c.State != inventory.ClaimReady {
			pending = append(pending, report.NewClaim(c, r.now))
		}
	}
	page.Pending = shorten(pending, link("/claims", "pool", page.Name, "state", notReady))
	page.Events = r.eventsOf(p)
	if !network.IsValid() {
		return &answer{template: "pool.html", title: page.Qualified, data: page, also: []format{formatJSON, formatCSV}}, nil
	}
	page.In, page.IPv6 = network.String(), network.Addr().Is6()
	page.Crumbs = crumbsOf(p, top, network)
	if all := p.Networks(); len(all) > 1 {
		for _, of := range all[:min(len(all), someRows)] {
			n := networkFor(of)
			page.Networks = append(page.Networks, crumb{n.String(), link("/pool", "pool", page.Name, "in", n), n == top})
		}
	}
	runs := runsIn(r.Inventory, p, allocator.RangeOfPrefix(network))
	page.Band = newBand(r.Inventory, p, top, bandBits)
	page.Map = newSquares(r.Inventory, p, network, runs)
	page.Each = page.Map.Each
	page.Facts = report.Counts(r.Segments(p.Domain, report.Offered(p, allocator.RangeOfPrefix(network))))
	shown, pages, err := pageOf(r, runs, "/pool", "pool", page.Name, "in", network)
	if err != nil {
		return nil, err
	}
	page.Pages = pages
	for _, run := range shown {
		page.Rows = append(page.Rows, newListRow(p, run))
	}
	page.Cooldowns = shorten(slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.State != string(state.SegmentCooldown) }), "")
	var releases []report.Release
	for _, released := range r.Releases(p.Domain, allocator.RangeOfPrefix(network)) {
		if released.Pool == p.Key {
			releases = append(releases, report.NewRelease(released))
		}
	}
	page.Releases = shorten(releases, "")
	return &answer{template: "pool.html", title: page.Qualified, data: page, also: []format{formatJSON, formatCSV}}, nil
}

// rangesOf returns the ranges of a pool in a network, for JSON and CSV.
func (r *request) rangesOf(p *inventory.Pool, network netip.Prefix) *answer {
	m := report.NewAddressMap(r.Inventory, p, allocator.RangeOfPrefix(network))
	if !network.IsValid() { // the pool offers no addresses
		m.Network = ""
	} else if r.format == formatCSV && r.value("in") == "" {
		m = report.NewWholeMap(r.Inventory, p)
	} else if r.value("in") == "" {
		m.OtherNetworks = report.NetworkTexts(p.Networks()[1:])
	}
	columns := report.SegmentColumns(false)
	rows := [][]string{{}}
	for _, c := range columns {
		rows[0] = append(rows[0], c.Header())
	}
	for _, s := range m.Segments {
		var row []string
		for _, c := range columns {
			row = append(row, report.CSVValue(c, s))
		}
		rows = append(rows, row)
	}
	return &answer{document: m, rows: rows}
}

func newListRow(p *inventory.Pool, r run) listRow {
	row := listRow{run: r, SizeText: allocator.AmountOf(r.Exact), Text: r.text(), Link: link("/address", "address", r.Exact.First)}
	if r.State == report.StateNotOffered {
		row.Text = "not offered by this pool"
	}
	if network := networkFor(r.Exact); r.Exact.First != r.Exact.Last && network.Bits() < network.Addr().BitLen()-rowBits {
		row.Link = link("/pool", "pool", poolName(p), "in", network)
	}
	if r.offered && r.State == string(state.SegmentFree) {
		row.Text, row.Claim = fmt.Sprintf("%s free", row.SizeText), p.Kind.FormatExampleClaim(p.Object, r.Exact)
	}
	return row
}

func reservedOf(p *butlerv1.NetworkPool) (list []string) {
	for _, r := range p.Spec.Reserved {
		list = append(list, r.CIDR)
	}
	return list
}
