package console

import (
	"fmt"
	"net/http"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// maxCounted bounds the sets of ranges that a page counts if the reader did not ask for
// the count: the time grows with the number of sets.
const maxCounted = 2000

// rowBands bounds the bands of a row on the page of pools.
const rowBands = 8

// poolRow is a row on the page of pools.
type poolRow struct {
	report.Pool
	Link                    string
	SizeText, FreeText      string
	LargestText, Fits, Used string
	Bands                   []band // a band for each network, at most rowBands
}

// pools serves the page of pools.
func (r *request) pools() (*answer, error) {
	var items []report.Pool
	var rows []poolRow
	for _, p := range r.Pools() {
		item := report.NewPool(r.Inventory, p)
		items = append(items, item)
		if r.format != formatHTML {
			continue
		}
		row := poolRow{
			Pool: item, Link: link("/pool", "pool", poolName(p)), SizeText: allocator.Amount(item.Size, item.Exact.Total), FreeText: allocator.Amount(item.Free, item.Exact.Available),
			LargestText: allocator.Amount(item.LargestFree, item.Exact.LargestFree), Fits: r.fitsText(p), Used: usedText(item),
		}
		for _, network := range p.Networks()[:min(len(p.Networks()), rowBands)] {
			row.Bands = append(row.Bands, newBand(r.Inventory, p, networkFor(network), rowBandBits))
		}
		rows = append(rows, row)
	}
	return &answer{template: "pools.html", title: "Pools", data: rows, also: []format{formatJSON}, document: report.NewList(report.KindPoolList, items)}, nil
}

// usedText returns the allocated share of a pool in percent. For a pool of more than 2^32
// addresses usedText returns the number of allocated addresses, because the share would
// always be 0 %.
func usedText(p report.Pool) string {
	switch {
	case p.Size == 0:
		return "none offered"
	case p.Exact.Total > 1<<32:
		return allocator.Amount(p.Allocated, p.Exact.Allocated) + " allocated"
	}
	return fmt.Sprintf("%d %% allocated", p.Percent)
}

// fitsText returns how many more tenants of the default size fit into a pool; "" for a
// pool without a default.
func (r *request) fitsText(p *inventory.Pool) string {
	pool, err := inventory.NetworkPoolOf(p)
	if err != nil {
		return ""
	}
	sizes := inventory.DefaultSizes(pool)
	if len(sizes) == 0 {
		return ""
	}
	return fitsText(r.Free(p, 1), sizes)
}

// fitsText returns how many sets of ranges fit into free addresses. Above maxCounted, the
// text is an upper bound.
func fitsText(free []allocator.Range, sizes []int64) string {
	perSet := int64(0)
	for _, size := range sizes {
		perSet += size
	}
	if perSet < 1 {
		return ""
	}
	if most := allocator.Total(free) / perSet; most > 1_000_000 {
		return "over 1000000"
	} else if most > maxCounted {
		return fmt.Sprintf("up to %d", most)
	}
	fit, err := inventory.CountFits(free, nil, sizes)
	if err != nil {
		return ""
	}
	return fmt.Sprint(fit.Sets)
}

// poolName returns the name of a pool in a query: Kind/namespace/name, or Kind/name.
func poolName(p *inventory.Pool) string { return objectName(p.Key) }

func objectName(k inventory.Key) string { return inventory.KindOf(k) + "/" + inventory.NameOf(k) }

// findPool returns the pool that the value "pool" of the query names.
func (r *request) findPool() (*inventory.Pool, error) {
	name := r.value("pool")
	if name == "" {
		return nil, badRequest("pool is missing: name a pool as NetworkPool/namespace/name")
	}
	for _, p := range r.Pools() {
		if strings.EqualFold(poolName(p), name) {
			return p, nil
		}
	}
	return nil, &statusError{http.StatusNotFound, fmt.Sprintf("no pool %q among those that you may read: the page of pools lists them", name)}
}
