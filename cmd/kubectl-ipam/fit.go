package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/inventory/report"
)

func (a *app) newFit() *cobra.Command {
	var tenant string
	var count int64
	cmd := &cobra.Command{
		Use: "fit POOL (--count N | --tenant nodes=N,loadbalancer=N)", Short: "Show how many ranges still fit into a pool", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Annotations: map[string]string{annotationFindings: "true"},
		Long: `Show how many ranges of a size, or how many tenants, still fit into the free addresses of a pool, by the pool's own policy.

The exit code is 1 if none fits, and 2 if the command could not look.`,
		Example: `  kubectl ipam fit vlan40 --tenant nodes=5,loadbalancer=8
  kubectl ipam fit vlan40 --count 900`,
		RunE: func(cmd *cobra.Command, args []string) error {
			sizes, err := fitSizes(count, tenant)
			if err != nil {
				return err
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
	cmd.MarkFlagsMutuallyExclusive("count", "tenant")
	cmd.MarkFlagsOneRequired("count", "tenant")
	return cmd
}

// fitSizes parses the sizes of the ranges of a set.
func fitSizes(count int64, tenant string) (sizes []int64, err error) {
	if tenant == "" {
		if count < 1 {
			return nil, fmt.Errorf("--count=%d: use 1 or more addresses", count)
		}
		return []int64{count}, nil
	}
	for part := range strings.SplitSeq(tenant, ",") {
		purpose, text, ok := strings.Cut(part, "=")
		size, err := strconv.ParseInt(text, 10, 32)
		if !ok || err != nil || size < 1 || purpose != string(inventory.PurposeNodes) && purpose != string(inventory.PurposeLoadBalancer) {
			return nil, fmt.Errorf("--tenant=%s: %q is neither nodes=N nor loadbalancer=N, with N addresses", tenant, part)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func (a *app) printFit(i *inventory.Inventory, p *inventory.Pool, sizes []int64, fit inventory.Fit) error {
	var err error
	switch {
	case a.output == "json" || a.output == "yaml":
		err = a.printDocument(report.NewFit(p, sizes, fit))
	case fit.Sets == 0:
		u := i.Usage(p.Key)
		_, err = fmt.Fprintf(a.out, "none: %s free, longest run %s\n", allocator.Amount(u.Available, u.Exact.Available), allocator.Amount(u.LargestFree, u.Exact.LargestFree))
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
