package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/inventory/cluster"
	"butlerlabs.dev/ipam/allocator/inventory/report"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/state"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func (a *app) newPlan() *cobra.Command {
	var change inventory.PoolChange
	var deletes bool
	var out string
	cmd := &cobra.Command{
		Use: "plan POOL", Short: "Show what a change of a NetworkPool would do", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Annotations: map[string]string{annotationFindings: "true"},
		Long: `Show whether a change of a NetworkPool, or its deletion, would be denied, who owns the addresses that it concerns, and what is free before and after.

The command changes nothing in the cluster. If you may update the pool, it also shows the response of the API server to a dry run. The exit code is 1 if the change would be
denied, and 2 if the command fails.`,
		Example: `  kubectl ipam plan vlan40 --reserve 10.40.2.0/24
  kubectl ipam plan vlan40 --cidr 10.40.0.0/20 --out patch.yaml
  kubectl ipam plan vlan40 --ranges 10.40.1.0-10.40.7.255
  kubectl ipam plan vlan40 --delete`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.plan(cmd.Context(), args[0], change, deletes, out)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&change.Reserve, "reserve", nil, "add these `networks` to spec.reserved")
	flags.StringSliceVar(&change.Unreserve, "unreserve", nil, "remove these `networks` from spec.reserved")
	flags.StringVar(&change.CIDR, "cidr", "", "set spec.cidr to this `network`")
	flags.StringSliceVar(&change.Ranges, "ranges", nil, "set spec.tenantAllocation.ranges to these `ranges`, as FIRST-LAST")
	flags.BoolVar(&deletes, "delete", false, "delete the pool")
	flags.StringVar(&out, "out", "", "write the change as a patch to this `file`, for kubectl patch --type=merge --patch-file")
	cmd.MarkFlagsOneRequired("reserve", "unreserve", "cidr", "ranges", "delete")
	for _, flag := range []string{"reserve", "unreserve", "cidr", "ranges"} {
		cmd.MarkFlagsMutuallyExclusive("delete", flag)
	}
	return cmd
}

func (a *app) plan(ctx context.Context, argument string, change inventory.PoolChange, deletes bool, out string) error {
	i, p, err := a.loadPool(ctx, argument)
	if err != nil {
		return err
	}
	stored, ok := p.Object.(*butlerv1.NetworkPool)
	if !ok {
		return fmt.Errorf("pool %s is a %s: plan serves NetworkPools", argument, inventory.KindOf(p.Key))
	}
	if deletes {
		return a.planDeletion(i, p)
	}
	updated, err := change.Apply(stored)
	if err != nil {
		return err
	}
	plan := i.PlanUpdate(p, updated)
	item := report.NewPlan(i, p, plan)
	patch, err := json.Marshal(map[string]any{"spec": updated.Spec})
	if err != nil {
		return err
	}
	if out != "" {
		text, err := yaml.JSONToYAML(patch)
		if err != nil {
			return err
		}
		if err := os.WriteFile(out, text, 0o644); err != nil {
			return err
		}
	}
	item.Server = a.dryRun(ctx, stored, patch)
	return a.printPlan(item, stored, plan)
}

// dryRun sends a patch to the API server as a dry run and returns the outcome.
func (a *app) dryRun(ctx context.Context, p *butlerv1.NetworkPool, patch []byte) string {
	config, err := a.config()
	if err != nil {
		return ""
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return ""
	}
	if !cluster.May(ctx, client, "patch", inventory.Key{Resource: butler.ResourceNetworkPool, Namespace: p.Namespace, Name: p.Name}) {
		return "not asked, as you may not patch the pool"
	}
	err = client.Patch(types.MergePatchType).AbsPath("apis", butlerv1.GroupVersion.Group, butlerv1.GroupVersion.Version, "namespaces", p.Namespace, "networkpools", p.Name).
		Param("dryRun", metav1.DryRunAll).Param("fieldManager", fieldManager).Body(patch).Do(ctx).Error()
	if err != nil {
		return err.Error()
	}
	return "accepted"
}

func (a *app) printPlan(item report.Plan, p *butlerv1.NetworkPool, plan inventory.Plan) error {
	if a.output == "json" || a.output == "yaml" {
		if err := a.printDocument(item); err != nil {
			return err
		}
	} else {
		var text strings.Builder
		for _, denied := range item.Denied {
			fmt.Fprintf(&text, "would be denied: %s\n", denied)
		}
		if len(item.Denied) == 0 {
			text.WriteString("would be accepted\n")
		}
		if len(item.Owners) > 0 {
			tenants, addresses := map[string]bool{}, []allocator.Range{}
			for _, owner := range item.Owners {
				if owner.Tenant != "" {
					tenants[owner.Tenant] = true
				}
				addresses = append(addresses, owner.Exact)
			}
			fmt.Fprintf(&text, "%s of %s %s %s of these addresses:\n", allocator.Counted(len(item.Owners), "range"), allocator.Counted(len(tenants), "tenant"), allocator.Agree(len(item.Owners), "owns", "own"), allocator.AmountOf(addresses...))
			if err := segmentList("", item.Owners, false).printTable(&text, a.output == "wide", !a.noHeaders); err != nil {
				return err
			}
		}
		then := "then"
		if len(item.Owners) > 0 {
			then = "without these owners"
		}
		fmt.Fprintf(&text, "free: %s now, %s %s\n", allocator.AmountOf(plan.Before...), allocator.AmountOf(plan.After...), then)
		if sizes := inventory.DefaultSizes(p); len(sizes) > 0 {
			before, err1 := inventory.CountFits(plan.Before, nil, sizes)
			after, err2 := inventory.CountFits(plan.After, nil, sizes)
			if err := errors.Join(err1, err2); err == nil {
				fmt.Fprintf(&text, "tenants of %d nodes and %d load balancer addresses that fit: %s now, %s %s\n", sizes[0], sizes[1], before.Text(), after.Text(), then)
			}
		}
		if item.Server != "" {
			fmt.Fprintf(&text, "the API server, asked by a dry run: %s\n", item.Server)
		}
		if _, err := fmt.Fprint(a.out, text.String()); err != nil {
			return err
		}
	}
	if len(item.Denied) > 0 {
		return findings{}
	}
	return nil
}

// planDeletion prints the claims because of which the deletion of a pool would be denied.
func (a *app) planDeletion(i *inventory.Inventory, p *inventory.Pool) error {
	keeps := func(c *inventory.Claim) bool { return c.Pool == p.Key && len(c.Ranges) > 0 }
	l := a.claimList(i, keeps)
	var err error
	switch n := len(l.items); {
	case a.output != "table" && a.output != "wide":
		err = l.print(a)
	case n == 0:
		_, err = fmt.Fprintln(a.out, "would be accepted: no claim owns an address of the pool")
	default:
		if _, err = fmt.Fprintf(a.out, "would be denied: %s %s addresses of the pool:\n", allocator.Counted(n, "claim"), allocator.Agree(n, "owns", "own")); err == nil {
			err = segmentList("", rangesOf(i, keeps), false).print(a)
		}
	}
	if err == nil && len(l.items) > 0 {
		return findings{}
	}
	return err
}

// rangesOf returns the ranges of claims, in the order of the claims.
func rangesOf(i *inventory.Inventory, selects func(*inventory.Claim) bool) (items []report.Segment) {
	for _, c := range i.Claims() {
		if !selects(c) {
			continue
		}
		for _, r := range c.Ranges {
			item := report.NewSegment(i, c.Domain, state.Segment{Range: r, State: state.SegmentOwned, Owner: c.Key})
			if c.State == inventory.ClaimConflict { // another claim owns the addresses
				item.State = strings.ToLower(string(c.State))
			}
			items = append(items, item)
		}
	}
	return items
}
