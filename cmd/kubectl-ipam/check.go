package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

func (a *app) newCheck() *cobra.Command {
	var only []string
	var grace time.Duration
	var network clusterDomain
	areas := slices.Sorted(maps.Keys(health.Areas))
	cmd := &cobra.Command{
		Use: "check", Short: "Look for defects, with a remedy for each", Args: cobra.NoArgs, Annotations: map[string]string{annotationFindings: "true"},
		Long: `Look for defects, and name a remedy for each:

  addresses     claims in conflict, waiting, not ready or stuck; address objects without claim
  pools         pools that overlap each other, the cluster or its Nodes; pools and records with faults
  capacity      pools that are full or fragmented
  installation  leader, journal and its grants, webhooks, certificates, endpoints, versions; a create by a dry run, with its duration

The command reads API objects only, and changes nothing: the dry run reserves no address. Each finding has an identifier, which the README
of this command explains. Nodes, Services and networks of the cluster are compared with the pools of one routing domain: that of --cluster-routing-domain,
which should be the manager's; without it the default routing domain, or the only one. Of several others none is compared: the manager allocates
addresses in use in none of them, and a finding would be wrong about most. What you may not read is listed as not checked. The flags -n and --domain select findings about pools and claims. The exit code is 0 without findings, 1 with findings, and 2 if
the command fails.`,
		Example: `  kubectl ipam check
  kubectl ipam check --only addresses,pools
  kubectl ipam check --only capacity -o json
  kubectl ipam check --grace 1m
  kubectl ipam check --only installation --manager-namespace butler-ipam-system`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, area := range only {
				if health.Areas[area] == "" {
					return fmt.Errorf("--only=%s: use %s", area, strings.Join(areas, ", "))
				}
			}
			if grace < 0 {
				return fmt.Errorf("--grace=%s: must not be negative", grace)
			}
			return a.check(cmd.Context(), only, grace, network.given(cmd))
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "only these `areas`: "+strings.Join(areas, ", "))
	cmd.Flags().DurationVar(&grace, "grace", health.DefaultGrace, "`duration` for which a claim may wait, a deletion or a rollout may last, before it is a finding")
	network.addFlag(a, cmd)
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(areas, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// clusterDomain is the flag that names the routing domain of the cluster's network.
type clusterDomain string

const flagClusterDomain = "cluster-routing-domain"

// addFlag adds the flag to a command.
func (d *clusterDomain) addFlag(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(d), flagClusterDomain, "", "`name` of the routing domain of the cluster's network, as the manager has it; \"\" is the default routing domain. Without the flag: the default one, or the only one")
	_ = cmd.RegisterFlagCompletionFunc(flagClusterDomain, a.completeBy(domainNames, true))
}

// given returns the value of the flag; nil without the flag.
func (d *clusterDomain) given(cmd *cobra.Command) *string {
	if !cmd.Flags().Changed(flagClusterDomain) {
		return nil
	}
	return (*string)(d)
}

func (a *app) check(ctx context.Context, only []string, grace time.Duration, clusterDomain *string) error {
	o, err := a.options()
	if err != nil {
		return err
	}
	o.Warn = nil // the output lists objects that are not checked
	checks := cluster.Checks{Grace: grace, Version: version, Create: true, ClusterDomain: clusterDomain}
	for _, name := range only {
		checks.Areas = append(checks.Areas, health.Areas[name])
	}
	h, i, err := cluster.Check(ctx, o, checks)
	if err != nil {
		return err
	}
	h.Findings = slices.DeleteFunc(h.Findings, func(f health.Finding) bool { return !a.selectsFinding(i, f) })
	return a.printHealth(h, i)
}

// selectsFinding reports whether the flags -n and --domain select an object of a finding.
// They select every finding about the installation.
func (a *app) selectsFinding(i *inventory.Inventory, f health.Finding) bool {
	if len(f.Objects) == 0 || f.Area() == health.AreaInstallation {
		return true
	}
	return slices.ContainsFunc(f.Objects, func(k inventory.Key) bool {
		if c := i.Claim(k); c != nil {
			return a.selects(k, c.Domain)
		}
		if p := i.Pool(k); p != nil {
			return a.selects(k, p.Domain)
		}
		return a.selects(k, a.domain)
	})
}
