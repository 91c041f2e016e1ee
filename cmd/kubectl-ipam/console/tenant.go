package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// tenantPage is the data of the page of a tenant.
type tenantPage struct {
	report.Tenant
	Facts   []string
	IsKnown bool                            // the TenantCluster was read
	Shown   short[report.LoadBalancerRange] // for a tenant of the platform
	// SeveralDomains reports whether the load balancer ranges are in several routing
	// domains.
	SeveralDomains bool
	Rows           []claimRow
	Pages          pager
}

// tenant serves the page of a tenant.
func (r *request) tenant() (*answer, error) {
	name := r.value("tenant")
	if name == "" {
		return nil, badRequest("tenant is missing: name a tenant as namespace/name")
	}
	claims := r.selectClaims(filter{Tenant: name})
	var stored inventory.Tenant
	if namespace, short, ok := strings.Cut(name, "/"); ok && r.options.Tenant != nil {
		stored = r.options.Tenant(r.ctx, namespace, short)
	}
	if len(claims) == 0 && stored.Cluster == nil && !r.Inventory.HasReleasesOf(name) {
		return nil, &statusError{http.StatusNotFound, fmt.Sprintf("no claim of a tenant %.300q among those that you may read: write namespace/name", name)}
	}
	item := report.NewTenant(r.Inventory, name, stored, claims)
	page := tenantPage{Tenant: item, IsKnown: stored.Cluster != nil}
	if page.IsKnown || slices.ContainsFunc(item.LoadBalancers, func(r report.LoadBalancerRange) bool { return r.Growth }) {
		page.Shown = shorten(item.LoadBalancers, "")
		page.SeveralDomains = slices.ContainsFunc(item.LoadBalancers, func(r report.LoadBalancerRange) bool { return r.RoutingDomain != item.LoadBalancers[0].RoutingDomain })
	}
	for _, a := range item.Addresses {
		fact := fmt.Sprintf("%s for %s in %s", a.Text, a.Purpose, allocator.Counted(a.Ranges, "range"))
		if a.Quota > 0 {
			fact += fmt.Sprintf(" (quota: %d)", a.Quota)
		}
		page.Facts = append(page.Facts, fact)
	}
	shown, pages, err := pageOf(r, claims, "/tenant", "tenant", name)
	if err != nil {
		return nil, err
	}
	page.Pages, page.Rows = pages, claimRows(shown)
	return &answer{template: "tenant.html", title: name, data: page, also: []format{formatJSON}, document: item}, nil
}
