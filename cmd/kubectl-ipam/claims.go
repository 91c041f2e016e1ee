package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
)

// claimItem is a claim in the output.
type claimItem struct {
	objectItem
	Pool          *objectItem `json:"pool,omitempty"`
	RoutingDomain string      `json:"routingDomain,omitempty"`
	Ranges        []string    `json:"ranges"`
	Count         int64       `json:"count"`
	Tenant        string      `json:"tenant,omitempty"`
	Team          string      `json:"team,omitempty"`
	Purpose       string      `json:"purpose"`
	Origin        string      `json:"origin,omitempty"`
	State         string      `json:"state"`
	Reason        string      `json:"reason,omitempty"`
	Created       time.Time   `json:"created"`

	age string
}

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
			var of *inventory.Pool
			if pool != "" {
				if of, err = a.findPool(i, pool); err != nil {
					return err
				}
			}
			var states []inventory.ClaimState
			for s, set := range only {
				if *set {
					states = append(states, s)
				}
			}
			return a.claimList(i, func(c *inventory.Claim) bool {
				return a.selects(c.Key, c.Domain) && (of == nil || c.Pool == of.Key) && (tenant == "" || c.Tenant == tenant) &&
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
	return cmd
}

func (a *app) claimList(i *inventory.Inventory, selects func(*inventory.Claim) bool) list[claimItem] {
	l := list[claimItem]{
		kind: "ClaimList", empty: "no claims", name: func(c claimItem) string { return strings.ToLower(c.Kind) + "/" + c.Name },
		columns: []column[claimItem]{
			{"NAMESPACE", false, func(c claimItem) string { return c.Namespace }},
			{"KIND", false, func(c claimItem) string { return c.Kind }},
			{"NAME", false, func(c claimItem) string { return c.Name }},
			{"POOL", false, func(c claimItem) string {
				if c.Pool == nil {
					return ""
				}
				return c.Pool.Name
			}},
			{"ADDRESSES", false, func(c claimItem) string { return strings.Join(c.Ranges, ",") }},
			{"COUNT", true, func(c claimItem) string { return fmt.Sprint(c.Count) }},
			{"TENANT", false, func(c claimItem) string { return c.Tenant }},
			{"TEAM", true, func(c claimItem) string { return c.Team }},
			{"PURPOSE", false, func(c claimItem) string { return c.Purpose }},
			{"ORIGIN", true, func(c claimItem) string { return c.Origin }},
			{"DOMAIN", true, func(c claimItem) string { return c.RoutingDomain }},
			{"STATE", false, func(c claimItem) string { return c.State }},
			{"AGE", false, func(c claimItem) string { return c.age }},
			{"REASON", false, func(c claimItem) string { return c.Reason }},
		},
	}
	for _, c := range i.Claims() {
		if !selects(c) {
			continue
		}
		item := claimItem{
			objectItem: *newObjectItem(c.Key), Pool: newObjectItem(c.Pool), RoutingDomain: c.Domain, Ranges: rangeTexts(c.Ranges), Count: allocator.Total(c.Ranges),
			Tenant: c.Tenant, Team: c.Team, Purpose: string(c.Purpose), Origin: c.Origin, State: string(c.State), Reason: c.Reason, Created: c.Created.UTC(),
			age: duration.HumanDuration(a.now().Sub(c.Created)),
		}
		l.items = append(l.items, item)
	}
	return l
}
