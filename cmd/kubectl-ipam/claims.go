package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

func (a *app) newClaims() *cobra.Command {
	var pool, tenant string
	only := map[inventory.ClaimState]*bool{}
	var notReady bool
	cmd := &cobra.Command{
		Use: "claims", Aliases: []string{"claim"}, Short: "List the claims of all kinds", Args: cobra.NoArgs,
		Long: `List IPAllocations, IPClaims, IPAddressClaims and ProxyVIPs in one table, by pool and address, with the reason where a claim is not ready.`,
		Example: `  kubectl ipam claims
  kubectl ipam claims --pool vlan40 --tenant team-1/web
  kubectl ipam claims --not-ready
  kubectl ipam claims --pending -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := a.load(cmd.Context())
			if err != nil {
				return err
			}
			if err := checkTenant(i, tenant); err != nil {
				return err
			}
			ofPool, err := a.poolFilter(i, pool)
			if err != nil {
				return err
			}
			var states []inventory.ClaimState
			for s, set := range only {
				if *set {
					states = append(states, s)
				}
			}
			return a.claimList(i, func(c *inventory.Claim) bool {
				return a.selects(c.Key, c.Domain) && ofPool(c) && (tenant == "" || c.Tenant == tenant) &&
					(!notReady || c.State != inventory.ClaimReady) && (len(states) == 0 || slices.Contains(states, c.State))
			}).print(a)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&pool, "pool", "", "only claims of this `pool`")
	flags.StringVar(&tenant, "tenant", "", "only claims of this tenant, as `namespace/name`")
	flags.BoolVar(&notReady, "not-ready", false, "only claims that are not Ready")
	for _, s := range []struct {
		state inventory.ClaimState
		help  string
	}{{inventory.ClaimPending, "only claims without addresses"}, {inventory.ClaimConflict, "only claims that lost an address to another claim"}, {inventory.ClaimDeleting, "only claims that are being deleted"}} {
		only[s.state] = flags.Bool(strings.ToLower(string(s.state)), false, s.help)
	}
	_ = cmd.RegisterFlagCompletionFunc("pool", a.completePools)
	_ = cmd.RegisterFlagCompletionFunc("tenant", a.completeBy(tenantNamesOf, false))
	return cmd
}

// poolFilter returns the filter of the flag --pool. If there is no pool of this name, the
// filter selects the claims that name the pool, if any.
func (a *app) poolFilter(i *inventory.Inventory, pool string) (func(*inventory.Claim) bool, error) {
	if pool == "" {
		return func(*inventory.Claim) bool { return true }, nil
	}
	p, err := a.findPool(i, pool)
	if err == nil {
		return func(c *inventory.Claim) bool { return c.Pool == p.Key }, nil
	}
	if slices.ContainsFunc(i.Pools(), func(p *inventory.Pool) bool { return inventory.IsNamed(p.Key, pool) && a.selects(p.Key, p.Domain) }) {
		return nil, err // several pools have the name
	}
	waits := func(c *inventory.Claim) bool {
		return c.Pool != inventory.Key{} && i.Pool(c.Pool) == nil && inventory.IsNamed(c.Pool, pool)
	}
	if !slices.ContainsFunc(i.Claims(), waits) {
		return nil, err
	}
	a.warn("no pool %q among those that you may read: the listed claims name this pool", pool)
	return waits, nil
}

// checkTenant returns an error for a tenant that is not written as namespace/name. The
// error names the tenants with this name.
func checkTenant(i *inventory.Inventory, tenant string) error {
	if tenant == "" || strings.Contains(tenant, "/") {
		return nil
	}
	text := fmt.Sprintf("--tenant=%s: write namespace/name", tenant)
	if names := tenantsNamed(i, tenant); len(names) > 0 {
		text += ": " + report.Listed(names, 3)
	}
	return errors.New(text)
}

// tenantsNamed returns the tenants, as namespace/name, that have a claim and this name.
func tenantsNamed(i *inventory.Inventory, name string) (tenants []string) {
	for _, c := range i.Claims() {
		if strings.HasSuffix(c.Tenant, "/"+name) {
			tenants = append(tenants, c.Tenant)
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

func (a *app) claimList(i *inventory.Inventory, selects func(*inventory.Claim) bool) list[report.Claim] {
	l := list[report.Claim]{
		kind: report.KindClaimList, empty: "no claims" + a.inWhichNamespace(claimNamespaces(i)), name: func(c report.Claim) string { return kubectlName(c.Object) },
		columns: []column[report.Claim]{
			{"NAMESPACE", false, func(c report.Claim) string { return c.Namespace }},
			{"KIND", false, func(c report.Claim) string { return c.Kind }},
			{"NAME", false, func(c report.Claim) string { return c.Name }},
			{"POOL", false, func(c report.Claim) string {
				if c.Pool == nil {
					return ""
				}
				return c.Pool.Name
			}},
			{"ADDRESSES", false, func(c report.Claim) string { return strings.Join(c.Ranges, ",") }},
			{"COUNT", true, func(c report.Claim) string { return fmt.Sprint(c.Count) }},
			{"TENANT", false, func(c report.Claim) string { return c.Tenant }},
			{"TEAM", true, func(c report.Claim) string { return c.Team }},
			{"PURPOSE", false, func(c report.Claim) string { return c.Purpose }},
			{"ORIGIN", true, func(c report.Claim) string { return c.Origin }},
			{"DOMAIN", true, func(c report.Claim) string { return c.RoutingDomain }},
			{"STATE", false, func(c report.Claim) string { return c.State }},
			{"AGE", false, func(c report.Claim) string { return c.Age }},
			{"REASON", false, func(c report.Claim) string { return c.Reason }},
		},
		csv: []csvColumn[report.Claim]{
			{name: "COUNT", value: func(c report.Claim) string { return allocator.DecimalOf(c.Exact...) }},
			{name: "AGE", title: "CREATED", value: func(c report.Claim) string { return c.Created.Format(time.RFC3339) }},
		},
	}
	for _, c := range i.Claims() {
		if !selects(c) {
			continue
		}
		l.items = append(l.items, report.NewClaim(c, a.now()))
	}
	return l
}
