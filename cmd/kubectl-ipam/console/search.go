package console

import (
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// found is a search result.
type found struct {
	What, Text, Link string
}

// searchPage is the data of the page with search results.
type searchPage struct {
	Query  string
	Items  []found
	Others int // number of results beyond pageRows, not on the page
}

// search serves the page with the results for an address, a network, or the name of a
// tenant, pool or claim. A single result redirects to its page.
func (r *request) search() (*answer, error) {
	text := r.value("q")
	if text == "" {
		return &answer{redirect: "/pools"}, nil
	}
	var items []found
	if of, err := allocator.ParseRange(text); err == nil {
		items = r.searchRange(of)
	} else {
		items = r.searchName(text, func(name string) bool { return strings.EqualFold(name, text) })
		if len(items) == 0 {
			lower := strings.ToLower(text)
			items = r.searchName(text, func(name string) bool { return strings.Contains(strings.ToLower(name), lower) })
		}
	}
	if len(items) == 1 {
		return &answer{redirect: items[0].Link}, nil
	}
	page := searchPage{Query: text, Others: max(0, len(items)-pageRows)}
	page.Items = items[:len(items)-page.Others]
	return &answer{template: "search.html", title: "Search: " + text, data: page}, nil
}

// searchRange returns the address, or the pools that offer addresses of a range.
func (r *request) searchRange(of allocator.Range) (items []found) {
	if of.First == of.Last {
		return []found{{"address", of.String(), link("/address", "address", of)}}
	}
	for _, p := range r.Pools() {
		if slices.ContainsFunc(p.Ranges, of.Overlaps) {
			items = append(items, found{"pool", objectName(p.Key) + " in " + networkFor(of).String(), link("/pool", "pool", poolName(p), "in", networkFor(of))})
		}
	}
	if len(items) == 0 {
		items = []found{{"addresses", of.Text(), link("/address", "address", of)}}
	}
	return items
}

// searchName returns pools, tenants and claims with a matching name.
func (r *request) searchName(text string, matches func(string) bool) (items []found) {
	named := func(k inventory.Key) bool {
		return inventory.IsNamed(k, text) || matches(k.Name) || matches(inventory.NameOf(k))
	}
	for _, p := range r.Pools() {
		if named(p.Key) {
			items = append(items, found{"pool", objectName(p.Key), link("/pool", "pool", poolName(p))})
		}
	}
	tenants := map[string]bool{}
	var claims []found
	for _, c := range r.Claims() {
		_, name, _ := strings.Cut(c.Tenant, "/")
		if c.Tenant != "" && !tenants[c.Tenant] && (matches(c.Tenant) || matches(name)) {
			tenants[c.Tenant] = true
			items = append(items, found{"tenant", c.Tenant, link("/tenant", "tenant", c.Tenant)})
		}
		switch {
		case !named(c.Key):
		case len(c.Ranges) > 0:
			claims = append(claims, found{"claim", objectName(c.Key), linkOfClaim(c)})
		default:
			claims = append(claims, found{"claim", objectName(c.Key) + ", without addresses", linkOfClaim(c)})
		}
	}
	return append(items, claims...)
}
