package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

func (a *app) newWho() *cobra.Command {
	var at, log string
	cmd := &cobra.Command{
		Use: "who ADDRESS | RANGE | CIDR | TENANT | KIND/[NAMESPACE/]NAME", Short: "Show who owns an address", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeOwners,
		Long: `Show the owner of an address in every routing domain, or that the address is free, reserved, granted or in cooldown, with the pools that offer the address and its
recorded releases. If the pool of the owner does not exist, or does not offer the address, the output says so.

For a range or a CIDR, the output has an entry for each part with one state and one owner. For a tenant (namespace/name) or a claim, the output lists all ranges.

With --at, show the owners at a time instead, from the AllocationHistories, which the manager stores if history.retentionDays is set. With --log, read the log of the
manager instead: it has a line of JSON, of logger "history", for each allocation and each release. The log must be complete: that of every replica. With --log and
without --at, show all owners in the log.`,
		Example: `  kubectl ipam who 10.40.1.60
  kubectl ipam who 10.40.1.0/24
  kubectl ipam who 10.40.1.60 --domain red
  kubectl ipam who team-1/web
  kubectl ipam who ipallocation/butler-system/web-nodes -o json
  kubectl ipam who 10.40.1.60 --at 2026-11-24T15:00:00Z
  kubectl ipam who 10.40.1.60 --at 90m
  kubectl ipam who 10.40.1.60 --log manager.log
  kubectl ipam who 10.40.1.60 --log - --at 2026-11-24T15:00:00Z`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if log != "" || at != "" {
				return a.past(cmd.Context(), args[0], log, at)
			}
			i, err := a.load(cmd.Context())
			if err != nil {
				return err
			}
			answers, err := a.answer(i, args[0])
			if err != nil {
				return err
			}
			if a.output != "table" {
				return segmentList(report.KindOwnerList, answers, true).print(a)
			}
			for _, item := range answers {
				if err := a.explain(item); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "`time` of the question: only the owners at that time, as 2026-11-24T15:00:00Z (all owners in that second), \"2026-11-24 15:00\" in UTC, or 90m ago")
	cmd.Flags().StringVar(&log, "log", "", "`file` with the log of the manager, - for standard input; without the flag, --at reads AllocationHistories")
	return cmd
}

// answer returns the runs of the addresses of an argument: a range, a tenant or a claim.
func (a *app) answer(i *inventory.Inventory, argument string) (items []report.Segment, err error) {
	r, invalid := allocator.ParseRange(argument)
	if invalid == nil {
		items = report.WhoAnywhere(i, r, a.inDomain)
		if len(items) == 0 {
			return nil, fmt.Errorf("%s: no pool offers or reserves these addresses%s, and no claim owns them", argument, a.inWhichDomain())
		}
		return items, nil
	}
	var waiting []string
	for _, c := range i.Claims() {
		if !a.inDomain(c.Domain) || c.Tenant != argument && !inventory.IsNamedWithKind(c.Key, argument) {
			continue
		}
		for _, r := range c.Ranges {
			items = append(items, report.Who(i, c.Domain, r)...)
		}
		if len(c.Ranges) == 0 {
			waiting = append(waiting, waitingText(c))
		}
	}
	tenants, named := tenantsNamed(i, argument), a.claimsNamed(i, argument)
	switch {
	case len(items) > 0:
		return items, nil
	case len(waiting) > 0:
		return nil, fmt.Errorf("%s owns no address: %s", argument, report.Listed(waiting, 3))
	case isLikeAddress(argument):
		return nil, invalid
	case len(tenants) > 0:
		return nil, fmt.Errorf("%q is the name of a tenant without its namespace: write %s", argument, report.Listed(tenants, 3))
	case len(named) > 0:
		return nil, fmt.Errorf("%q is the name of a claim without its kind: write %s", argument, report.Listed(named, 3))
	}
	if nearest := inventory.Nearest(argument, a.ownerArguments(i)); len(nearest) > 0 {
		return nil, fmt.Errorf("no tenant or claim is named %q%s: did you mean %s?", argument, a.inWhichDomain(), report.Listed(nearest, 3))
	}
	return nil, fmt.Errorf("%q is no address, range or network, and no tenant (namespace/name) or claim (kind/namespace/name) has this name%s", argument, a.inWhichDomain())
}

// claimArgument returns an argument that names a claim: kind/namespace/name.
func claimArgument(c *inventory.Claim) string {
	return strings.ToLower(inventory.KindOf(c.Key)) + "/" + inventory.NameOf(c.Key)
}

// claimsNamed lists the arguments of the claims with a name, or with a namespace and a
// name, in any kind.
func (a *app) claimsNamed(i *inventory.Inventory, name string) (arguments []string) {
	for _, c := range i.Claims() {
		if a.inDomain(c.Domain) && (strings.EqualFold(c.Key.Name, name) || strings.EqualFold(inventory.NameOf(c.Key), name)) {
			arguments = append(arguments, claimArgument(c))
		}
	}
	return arguments
}

// ownerArguments lists the tenants, and the arguments of the claims.
func (a *app) ownerArguments(i *inventory.Inventory) []string {
	arguments := tenantNamesOf(i)
	for _, c := range i.Claims() {
		if a.inDomain(c.Domain) {
			arguments = append(arguments, claimArgument(c))
		}
	}
	return arguments
}

// waitingText describes a claim without addresses, with the reason.
func waitingText(c *inventory.Claim) string {
	if c.State == inventory.ClaimDeleting {
		return inventory.TitleOf(c.Key) + " is being deleted"
	}
	return inventory.TitleOf(c.Key) + " waits for addresses: " + dashed(cmp.Or(c.Reason, "the manager has not written a reason yet"))
}

// addressLike matches the beginning of an IPv4 address. Names of tenants and claims
// contain no colon, and neither a namespace nor a kind begins like an address.
var addressLike = regexp.MustCompile(`^[0-9]+\.[0-9]|^[0-9a-fA-F]*:`)

// isLikeAddress reports whether an argument is written like an address, a range or a
// network.
func isLikeAddress(argument string) bool { return addressLike.MatchString(strings.TrimSpace(argument)) }

func (a *app) inWhichDomain() string {
	if a.domainSet {
		return fmt.Sprintf(" in routing domain %q", a.domain)
	}
	return ""
}

// explain prints a run of addresses with owner, pools, reservation and releases.
func (a *app) explain(s report.Segment) error {
	var text strings.Builder
	line := func(format string, values ...any) { fmt.Fprintln(&text, safetext.Line(fmt.Sprintf(format, values...))) }
	line("%s  %s", s.Exact, s.Summary())
	for _, rival := range s.Rivals {
		line("  conflict  also named by %s", rival)
	}
	if s.Tenant != "" {
		line("  tenant    %s", s.Tenant)
	}
	if s.Purpose != "" {
		line("  purpose   %s", s.Purpose)
	}
	if s.State == string(state.SegmentOwned) && s.Since != nil {
		line("  since     %s", s.Since.Format(time.RFC3339))
	}
	offer := "pool"
	if s.OwnerPool != nil {
		line("  pool      %s", s.OwnerPool)
		offer = "offered by"
	}
	for _, p := range s.Pools {
		line("  %-9s %s", offer, p)
	}
	line("  domain    %s", cmp.Or(s.RoutingDomain, "(default)"))
	if s.ReservedBy != nil {
		line("  reserved  %s: %s", s.ReservedBy, s.Reservation)
	}
	for _, r := range s.Releases {
		from := ""
		if r.AllocatedAt != nil {
			from = r.AllocatedAt.Format(time.RFC3339) + " "
		}
		line("  before    IPAllocation %s for %s, %s, %sto %s", r.Claim, r.Tenant, r.Range, from, r.ReleasedAt.Format(time.RFC3339))
	}
	_, err := fmt.Fprint(a.out, text.String())
	return err
}

// segmentList is the output of runs of addresses.
func segmentList(kind string, items []report.Segment, domains bool) list[report.Segment] {
	l := list[report.Segment]{kind: kind, empty: "no addresses", items: items, name: func(s report.Segment) string { return s.Range }}
	for _, c := range report.SegmentColumns(domains) {
		l.columns = append(l.columns, column[report.Segment]{c.Name, c.Wide, c.Value})
		l.csv = append(l.csv, csvColumn[report.Segment]{name: c.Name, value: func(s report.Segment) string { return report.CSVValue(c, s) }})
	}
	return l
}
