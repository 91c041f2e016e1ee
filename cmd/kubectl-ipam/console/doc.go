// Package console serves web pages about pools, claims and addresses: HTML with SVG for
// persons, JSON and CSV for programs.
//
//	path      content                                     formats      values of the query
//	/pools    list of pools                               .json
//	/pool     a pool: map, ranges, claims, events         .json .csv   pool, in, page
//	/plan     effect of a change of a NetworkPool         .json        pool, reserve, unreserve, cidr, ranges
//	/fit      how many more ranges fit into a pool        .json        pool, count or nodes and loadbalancer
//	/address  owners of an address or a range             .json        address
//	/tenant   addresses, quota, conditions of a tenant    .json        tenant
//	/claims   list of claims of every kind                .json        pool, tenant, kind, state, page
//	/health   defects, with remedies                      .json        area, page
//	/search   results for an address, a network, a name                q
//
// Package report defines the JSON types. The pages need no script and no inline style,
// and write nothing. The caller of New provides the inventory.
//
// On every page, the value refresh is the number of seconds after which the browser loads
// the page again. A page denies a value that it does not know.
//
// If the data is not current, for example because the API server cannot be reached, each
// page shows since when, and JSON has the field notCurrentSince.
//
// A map has at most 2,048 squares. A square is an address or a network. The range list
// has the content of the map in words, for screen readers and the keyboard.
package console
