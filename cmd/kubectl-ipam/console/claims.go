package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// notReady is the value of the state filter for claims in each state but Ready.
const notReady = "not-ready"

// filter selects claims. An empty field selects every claim.
type filter struct {
	Pool, Tenant, Kind, State string
}

func (f filter) selects(c *inventory.Claim) bool {
	return (f.Pool == "" || c.Pool != inventory.Key{} && strings.EqualFold(objectName(c.Pool), f.Pool)) && (f.Tenant == "" || c.Tenant == f.Tenant) &&
		(f.Kind == "" || strings.EqualFold(inventory.KindOf(c.Key), f.Kind)) &&
		(f.State == "" || strings.EqualFold(string(c.State), f.State) || f.State == notReady && c.State != inventory.ClaimReady)
}

// claimRow is a claim in a table.
type claimRow struct {
	report.Claim
	Domains  bool // the table has a column for the routing domain
	PoolLink string
	Links    []crumb // links to the pages of the ranges
}

func newClaimRow(c report.Claim) claimRow {
	row := claimRow{Claim: c}
	if c.Pool != nil {
		row.PoolLink = link("/pool", "pool", strings.Replace(c.Pool.String(), " ", "/", 1))
	}
	for _, r := range c.Ranges {
		row.Links = append(row.Links, crumb{Text: r, Link: link("/address", "address", r)})
	}
	return row
}

// claimsPage is the data of the page with a list of claims.
type claimsPage struct {
	Filter               filter
	Pools, Kinds, States []string
	Rows                 []claimRow
	Pages                pager
}

// claims serves the page with the claims of every kind.
func (r *request) claims() (*answer, error) {
	f := filter{r.value("pool"), r.value("tenant"), r.value("kind"), r.value("state")}
	var kindNames []string
	for _, k := range kinds.Claims() {
		kindNames = append(kindNames, k.Name)
	}
	states := []string{notReady}
	for _, s := range []inventory.ClaimState{inventory.ClaimReady, inventory.ClaimNotReady, inventory.ClaimPending, inventory.ClaimConflict, inventory.ClaimDeleting} {
		states = append(states, string(s))
	}
	for _, field := range []struct {
		name, value string
		values      []string
	}{{"kind", f.Kind, kindNames}, {"state", f.State, states}} {
		if field.value != "" && !slices.ContainsFunc(field.values, func(v string) bool { return strings.EqualFold(v, field.value) }) {
			return nil, badRequest("%s=%.100s: use one of %s", field.name, field.value, strings.Join(field.values, ", "))
		}
	}
	items := r.selectClaims(f)
	page := claimsPage{Filter: f, Kinds: kindNames, States: states}
	for _, p := range r.Pools() {
		page.Pools = append(page.Pools, poolName(p))
	}
	if len(items) == 0 && f.Pool != "" && !slices.ContainsFunc(page.Pools, func(name string) bool { return strings.EqualFold(name, f.Pool) }) {
		return nil, &statusError{http.StatusNotFound, fmt.Sprintf("pool=%.100s: no such pool among those that you may read, and no claim names it: use Kind/namespace/name as on the page of pools", f.Pool)}
	}
	shown, pages, err := pageOf(r, items, "/claims", "pool", f.Pool, "tenant", f.Tenant, "kind", f.Kind, "state", f.State)
	if err != nil {
		return nil, err
	}
	page.Pages, page.Rows = pages, claimRows(shown)
	return &answer{template: "claims.html", title: "Claims", data: page, also: []format{formatJSON}, document: report.NewList(report.KindClaimList, items)}, nil
}

func (r *request) selectClaims(f filter) (items []report.Claim) {
	for _, c := range r.Claims() {
		if f.selects(c) {
			items = append(items, report.NewClaim(c, r.now))
		}
	}
	return items
}

// claimRows returns the rows of a table of claims, with a column for the routing domain
// if the claims have several.
func claimRows(items []report.Claim) (rows []claimRow) {
	several := slices.ContainsFunc(items, func(c report.Claim) bool { return c.RoutingDomain != items[0].RoutingDomain })
	for _, c := range items {
		row := newClaimRow(c)
		row.Domains = several
		rows = append(rows, row)
	}
	return rows
}
