// Package console serves web pages about pools, claims and addresses: for persons as HTML with SVG, for programs as JSON and CSV.
//
//	/pools    all pools                                   .json
//	/pool     one pool: map, ranges, claims, events       .json .csv   pool, in, page
//	/plan     what a change of a NetworkPool would do     .json        pool, reserve, unreserve, cidr, ranges
//	/fit      how many ranges still fit into a pool       .json        pool, count or nodes and loadbalancer
//	/address  who owns an address                         .json        address
//	/tenant   what a tenant owns, quota, conditions       .json        tenant
//	/claims   the claims of all kinds                     .json        pool, tenant, kind, state, page
//	/health   defects, with remedies                      .json        area, page
//	/search   finds an address, a network, a name                      q
//
// The JSON types are those of package report. The pages need no script and no inline style, write nothing, and get an inventory from the caller of New.
//
// Every page takes refresh, a number of seconds after which the browser loads the page again.
//
// A map has at most 2,048 squares, of one address or of a network each. The range list has the same content in words, for screen readers and the keyboard.
package console
