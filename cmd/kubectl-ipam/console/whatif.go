package console

import (
	"strconv"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// maxChanges bounds the networks and ranges of a change.
const maxChanges = 64

// changeForm is the form for a change of a NetworkPool.
type changeForm struct {
	Pool                             string
	Offered                          bool // the pool is a NetworkPool
	Reserved                         []string
	Reserve, Unreserve, CIDR, Ranges string
}

// sizeForm is the form for the sizes of ranges.
type sizeForm struct {
	Pool                       string
	Count, Nodes, LoadBalancer string
}

// planPage is the data of the page with the effect of a change.
type planPage struct {
	Change        changeForm
	Invalid       bool // the changed pool breaks rules: the change has no other effect
	Unchanged     bool // the pool has the values of the change already
	Denied        []string
	Owners        short[report.Segment]
	Tenants       int
	Owned         string // number of addresses that the Owners own
	Before, After string // numbers of free addresses
	FitsBefore    string // number of tenants of the default size; "" for a pool without a default
	FitsAfter     string
}

// plan serves the page with the effect of a change of a NetworkPool.
func (r *request) plan() (*answer, error) {
	p, err := r.findPool()
	if err != nil {
		return nil, err
	}
	pool, err := inventory.NetworkPoolOf(p)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	form := changeForm{
		Pool: poolName(p), Offered: true, Reserved: reservedOf(pool), Reserve: r.value("reserve"), Unreserve: r.value("unreserve"), CIDR: r.value("cidr"), Ranges: r.value("ranges"),
	}
	change := inventory.PoolChange{Reserve: texts(form.Reserve), Unreserve: texts(form.Unreserve), CIDR: form.CIDR, Ranges: texts(form.Ranges)}
	if n := len(change.Reserve) + len(change.Unreserve) + len(change.Ranges); n > maxChanges {
		return nil, badRequest("the change names %d networks and ranges: use at most %d", n, maxChanges)
	}
	if change.IsEmpty() {
		return nil, badRequest("the change is empty: fill in reserve, unreserve, cidr or ranges")
	}
	updated, err := change.Apply(pool)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	patch, err := inventory.SpecPatch(pool, updated)
	if err != nil {
		return nil, err
	}
	plan := r.PlanUpdate(p, updated)
	document := report.NewPlan(r.Inventory, p, plan)
	page := planPage{
		Change: form, Invalid: len(plan.Faults) > 0, Unchanged: patch == nil, Denied: document.Denied, Owners: shorten(document.Owners, ""), Before: allocator.AmountOf(plan.Before...), After: allocator.AmountOf(plan.After...),
	}
	tenants, owned := map[string]bool{}, []allocator.Range{}
	for _, o := range document.Owners {
		if owned = append(owned, o.Exact); o.Tenant != "" {
			tenants[o.Tenant] = true
		}
	}
	page.Tenants, page.Owned = len(tenants), allocator.AmountOf(owned...)
	if sizes := inventory.DefaultSizes(pool); len(sizes) > 0 {
		page.FitsBefore, page.FitsAfter = fitsText(plan.Before, sizes), fitsText(plan.After, sizes)
	}
	return &answer{template: "plan.html", title: "What if: " + inventory.NameOf(p.Key), data: page, also: []format{formatJSON}, document: document}, nil
}

// fitPage is the data of the page with the number of ranges that fit.
type fitPage struct {
	report.Fit
	Size                     sizeForm
	Precise                  bool
	Count, FreeText, Largest string
}

// fit serves the page with the number of ranges that still fit into a pool.
func (r *request) fit() (*answer, error) {
	p, err := r.findPool()
	if err != nil {
		return nil, err
	}
	form := sizeForm{Pool: poolName(p), Count: r.value("count"), Nodes: r.value("nodes"), LoadBalancer: r.value("loadbalancer")}
	var sizes []int64
	for _, field := range []struct{ name, value string }{{"count", form.Count}, {"nodes", form.Nodes}, {"loadbalancer", form.LoadBalancer}} {
		if field.value == "" {
			continue
		}
		size, err := strconv.ParseInt(field.value, 10, 32)
		if err != nil || size < 1 {
			return nil, badRequest("%s=%.100s: use a number of addresses, 1 or more", field.name, field.value)
		}
		sizes = append(sizes, size)
	}
	if len(sizes) == 0 || form.Count != "" && len(sizes) > 1 {
		return nil, badRequest("give the size of a range in count, or those of a tenant in nodes and loadbalancer")
	}
	fit, err := r.Fits(p, sizes)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	u := r.Usage(p.Key)
	page := fitPage{report.NewFit(r.Inventory, p, sizes, fit), form, fit.IsPrecise(), capitalized(fit.Text()), allocator.Amount(u.Available, u.Exact.Available), allocator.Amount(u.LargestFree, u.Exact.LargestFree)}
	return &answer{template: "fit.html", title: "Fit: " + inventory.NameOf(p.Key), data: page, also: []format{formatJSON}, document: page.Fit}, nil
}

// capitalized returns a text with a capital first letter, for the beginning of a
// sentence.
func capitalized(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// texts splits a list at commas and blanks.
func texts(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
