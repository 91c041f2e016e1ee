package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

func (a *app) newFit() *cobra.Command {
	var tenant, provider string
	var count int64
	cmd := &cobra.Command{
		Use:   "fit (POOL (--count N | --tenant nodes=N,loadbalancer=N) | --provider NAME [--tenant nodes=N,loadbalancer=N])",
		Short: "Show how many ranges still fit into a pool, or tenants of a provider", ValidArgsFunction: a.completePools,
		Annotations: map[string]string{annotationFindings: "true"},
		Long: `Show how many ranges of a size, or how many tenants, still fit into the free addresses of a pool, by the pool's own policy.

With --provider: how many tenants fit into the NetworkPools of a ProviderConfig, and from which pool the next TenantCluster gets addresses. The manager tries the pools
in the order of spec.network.poolRefs: by priority, equal priorities in the order of the list. It allocates the addresses of nodes first, then those of load
balancers, each from the first pool with room, so one tenant may get them from two pools. A paused or invalid pool ends the search: tenants wait for this pool. FITS of
a row is the number of tenants if the pool were the only one.

Without --tenant, the sizes are as for a TenantCluster without spec.networking.lbPoolSize: from the ProviderConfig, otherwise the defaults of each pool. The quota of the
ProviderConfig applies to all sizes.

The NetworkPools are those of the namespace of tenants: that of the flag -n, or butler-system, the default of the manager and of the chart (tenants.namespace). The
ProviderConfig is in the same namespace, unless --provider names another: NAMESPACE/NAME. --provider needs the right to get providerconfigs.butler.butlerlabs.dev, which
the role butler-ipam-tenants-viewer contains.

The exit code is 1 if none fits, and 2 if the command fails.`,
		Example: `  kubectl ipam fit vlan40 --tenant nodes=5,loadbalancer=8
  kubectl ipam fit vlan40 --count 900
  kubectl ipam fit --provider lab
  kubectl ipam fit --provider lab --tenant nodes=5,loadbalancer=8`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case provider == "" && len(args) == 0:
				return errors.New("name a pool, or a ProviderConfig with --provider")
			case provider != "" && len(args) > 0:
				return fmt.Errorf("pool %q and --provider=%s: use one of them; the ProviderConfig names the pools", args[0], provider)
			case provider == "" && !cmd.Flags().Changed("count") && !cmd.Flags().Changed("tenant"):
				return errors.New("name the size of a range with --count, or the sizes of a tenant with --tenant")
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ranges, err := parseTenant(tenant)
			if err != nil {
				return err
			}
			if provider != "" {
				return a.fitProvider(cmd.Context(), provider, ranges)
			}
			sizes := []int64{count}
			if count < 1 && len(ranges) == 0 {
				return fmt.Errorf("--count=%d: use 1 or more addresses", count)
			} else if len(ranges) > 0 {
				sizes = sizesOf(ranges)
			}
			i, p, err := a.loadPool(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fit, err := i.Fits(p, sizes)
			if err != nil {
				return err
			}
			return a.printFit(i, p, sizes, fit)
		},
	}
	cmd.Flags().Int64Var(&count, "count", 0, "`number` of addresses of one range")
	cmd.Flags().StringVar(&tenant, "tenant", "", "`sizes` of the ranges of one tenant, as in nodes=5,loadbalancer=8")
	cmd.Flags().StringVar(&provider, "provider", "", "`name` of a ProviderConfig, or NAMESPACE/NAME: count the tenants that fit into its NetworkPools")
	_ = cmd.RegisterFlagCompletionFunc("provider", a.completeProviders)
	cmd.MarkFlagsMutuallyExclusive("count", "tenant")
	cmd.MarkFlagsMutuallyExclusive("count", "provider")
	return cmd
}

// tenantRange is a range of a tenant.
type tenantRange struct {
	purpose inventory.Purpose
	size    int64
}

// parseTenant parses the value of --tenant; no ranges for "". parseTenant denies two
// ranges of one purpose: the manager allocates one range of each.
func parseTenant(text string) (ranges []tenantRange, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		purpose, number, ok := strings.Cut(part, "=")
		size, err := strconv.ParseInt(number, 10, 32)
		if !ok || err != nil || size < 1 || purpose != string(inventory.PurposeNodes) && purpose != string(inventory.PurposeLoadBalancer) {
			return nil, fmt.Errorf("--tenant=%s: %q is neither nodes=N nor loadbalancer=N, with N addresses", text, part)
		}
		if slices.ContainsFunc(ranges, func(r tenantRange) bool { return string(r.purpose) == purpose }) {
			return nil, fmt.Errorf("--tenant=%s: names %s twice: a tenant gets one range of each purpose, so name each once", text, purpose)
		}
		ranges = append(ranges, tenantRange{inventory.Purpose(purpose), size})
	}
	return ranges, nil
}

func sizesOf(ranges []tenantRange) (sizes []int64) {
	for _, r := range ranges {
		sizes = append(sizes, r.size)
	}
	return sizes
}

// soonFreeText returns the number of addresses of a pool that are promised to creates in
// progress, the number in cooldown, and the earliest end of a cooldown, for the end of a
// sentence; "" without such addresses.
func soonFreeText(i *inventory.Inventory, p *inventory.Pool) (text string) {
	if granted := i.Usage(p.Key).Granted; granted > 0 {
		text = fmt.Sprintf("; %d promised to creates in progress, those of failed creates for two more minutes", granted)
	}
	ranges, first := i.Cooldown(p)
	if len(ranges) == 0 {
		return text
	}
	text += fmt.Sprintf("; %s in cooldown", allocator.AmountOf(ranges...))
	if !first.IsZero() {
		text += ", the first until " + first.UTC().Format(time.RFC3339)
	}
	return text
}

func (a *app) printFit(i *inventory.Inventory, p *inventory.Pool, sizes []int64, fit inventory.Fit) error {
	var err error
	switch {
	case a.output == "json" || a.output == "yaml":
		err = a.printDocument(report.NewFit(i, p, sizes, fit))
	case fit.Sets == 0:
		u := i.Usage(p.Key)
		_, err = fmt.Fprintf(a.out, "none: %s free, largest block %s%s\n", allocator.Amount(u.Available, u.Exact.Available), allocator.Amount(u.LargestFree, u.Exact.LargestFree), soonFreeText(i, p))
	case !fit.IsPrecise():
		_, err = fmt.Fprintf(a.out, "%s more fit\n", fit.Text())
	default:
		_, err = fmt.Fprintf(a.out, "%d more fit, %s left over (%d without fragmentation)\n", fit.Sets, allocator.Counted(fit.Left, "address"), fit.Unfragmented)
	}
	if err == nil && fit.Sets == 0 {
		return findings{}
	}
	return err
}
