package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// planItem is the effect of a change in the output.
type planItem struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Pool       *objectItem   `json:"pool"`
	Denied     []string      `json:"denied,omitempty"`
	Owners     []segmentItem `json:"owners"`
	FreeBefore int64         `json:"freeBefore"`
	FreeAfter  int64         `json:"freeAfter"`
	// Server is the answer of the API server to a dry run; "" if it was not asked.
	Server string `json:"server,omitempty"`
}

// poolChange is a change of a NetworkPool.
type poolChange struct {
	cidr                       string
	reserve, unreserve, ranges []string
	deletes                    bool
}

func (a *app) newPlan() *cobra.Command {
	var change poolChange
	var out string
	cmd := &cobra.Command{
		Use: "plan POOL", Short: "Show what a change of a NetworkPool would do", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Annotations: map[string]string{annotationFindings: "true"},
		Long: `Show whether a change of a NetworkPool, or its deletion, would be denied, who owns the addresses that it concerns, and what is free before and after.

The command writes nothing. It also asks the API server, by a dry run, if you may update the pool. The exit code is 1 if the change would be
denied, and 2 if the command could not look.`,
		Example: `  kubectl ipam plan vlan40 --reserve 10.40.2.0/24
  kubectl ipam plan vlan40 --cidr 10.40.0.0/20 --out patch.yaml
  kubectl ipam plan vlan40 --ranges 10.40.1.0-10.40.7.255
  kubectl ipam plan vlan40 --delete`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.plan(cmd.Context(), args[0], change, out) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&change.reserve, "reserve", nil, "add these `networks` to spec.reserved")
	flags.StringSliceVar(&change.unreserve, "unreserve", nil, "remove these `networks` from spec.reserved")
	flags.StringVar(&change.cidr, "cidr", "", "set spec.cidr to this `network`")
	flags.StringSliceVar(&change.ranges, "ranges", nil, "set spec.tenantAllocation.ranges to these `ranges`, as FIRST-LAST")
	flags.BoolVar(&change.deletes, "delete", false, "delete the pool")
	flags.StringVar(&out, "out", "", "write the change as a patch to this `file`, for kubectl patch --type=merge --patch-file")
	cmd.MarkFlagsOneRequired("reserve", "unreserve", "cidr", "ranges", "delete")
	for _, flag := range []string{"reserve", "unreserve", "cidr", "ranges"} {
		cmd.MarkFlagsMutuallyExclusive("delete", flag)
	}
	return cmd
}

func (a *app) plan(ctx context.Context, argument string, change poolChange, out string) error {
	i, p, err := a.loadPool(ctx, argument)
	if err != nil {
		return err
	}
	stored, ok := p.Object.(*butlerv1.NetworkPool)
	if !ok {
		return fmt.Errorf("pool %s is a %s: plan serves NetworkPools", argument, inventory.KindOf(p.Key))
	}
	if change.deletes {
		return a.planDeletion(i, p)
	}
	updated, err := change.apply(stored)
	if err != nil {
		return err
	}
	plan := i.PlanUpdate(p, updated)
	item := planItem{APIVersion: apiVersion, Kind: "Plan", Pool: newObjectItem(p.Key), FreeBefore: allocator.Total(plan.Before), FreeAfter: allocator.Total(plan.After), Owners: []segmentItem{}}
	for _, fault := range plan.Faults {
		item.Denied = append(item.Denied, fault.Error())
	}
	if plan.Denied != nil {
		item.Denied = append(item.Denied, plan.Denied.Error())
	}
	for _, g := range plan.Owners {
		item.Owners = append(item.Owners, newSegmentItem(i, p.Domain, g))
	}
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

// apply returns a changed copy of a pool.
func (c poolChange) apply(p *butlerv1.NetworkPool) (*butlerv1.NetworkPool, error) {
	p = p.DeepCopy()
	if c.cidr != "" {
		p.Spec.CIDR = c.cidr
	}
	for _, network := range c.unreserve {
		n := slices.IndexFunc(p.Spec.Reserved, func(r butlerv1.ReservedRange) bool { return r.CIDR == network })
		if n < 0 {
			return nil, fmt.Errorf("--unreserve=%s: spec.reserved has no such network", network)
		}
		p.Spec.Reserved = slices.Delete(p.Spec.Reserved, n, n+1)
	}
	for _, network := range c.reserve {
		p.Spec.Reserved = append(p.Spec.Reserved, butlerv1.ReservedRange{CIDR: network})
	}
	if len(c.ranges) > 0 {
		if p.Spec.TenantAllocation == nil {
			p.Spec.TenantAllocation = &butlerv1.TenantAllocation{}
		}
		p.Spec.TenantAllocation.Ranges = nil
		for _, text := range c.ranges {
			r, err := allocator.ParseRange(text)
			if err != nil {
				return nil, fmt.Errorf("--ranges: %w", err)
			}
			p.Spec.TenantAllocation.Ranges = append(p.Spec.TenantAllocation.Ranges, butlerv1.IPRange{Start: r.First.String(), End: r.Last.String()})
		}
	}
	return p, nil
}

// dryRun asks the API server for the outcome of a patch.
func (a *app) dryRun(ctx context.Context, p *butlerv1.NetworkPool, patch []byte) string {
	config, err := a.config()
	if err != nil {
		return ""
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return ""
	}
	if !may(ctx, client, "patch", butler.ResourceNetworkPool, p.Namespace, p.Name) {
		return "not asked, as you may not patch the pool"
	}
	err = client.Patch(types.MergePatchType).AbsPath("apis", butlerv1.GroupVersion.Group, butlerv1.GroupVersion.Version, "namespaces", p.Namespace, "networkpools", p.Name).
		Param("dryRun", metav1.DryRunAll).Param("fieldManager", fieldManager).Body(patch).Do(ctx).Error()
	if err != nil {
		return err.Error()
	}
	return "accepted"
}

func (a *app) printPlan(item planItem, p *butlerv1.NetworkPool, plan inventory.Plan) error {
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
				addresses = append(addresses, owner.exact)
			}
			fmt.Fprintf(&text, "%s of %s %s %s of these addresses:\n", allocator.Counted(len(item.Owners), "range"), allocator.Counted(len(tenants), "tenant"), allocator.Agree(len(item.Owners), "owns", "own"), allocator.AmountOf(addresses...))
			if err := segmentList("", item.Owners, false).printTable(&text, false, false); err != nil {
				return err
			}
		}
		then := "then"
		if len(item.Owners) > 0 {
			then = "without these owners"
		}
		fmt.Fprintf(&text, "free: %s now, %s %s\n", allocator.AmountOf(plan.Before...), allocator.AmountOf(plan.After...), then)
		if sizes := defaultSizes(p); len(sizes) > 0 {
			before, err1 := inventory.CountFits(plan.Before, nil, sizes)
			after, err2 := inventory.CountFits(plan.After, nil, sizes)
			if err := errors.Join(err1, err2); err == nil {
				fmt.Fprintf(&text, "tenants of %d nodes and %d load balancer addresses that fit: %d now, %d %s\n", sizes[0], sizes[1], before.Sets, after.Sets, then)
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

// defaultSizes returns the default numbers of addresses of a tenant of the pool; nil if the pool has none.
func defaultSizes(p *butlerv1.NetworkPool) []int64 {
	if p.Spec.TenantAllocation == nil || p.Spec.TenantAllocation.Defaults == nil {
		return nil
	}
	d := p.Spec.TenantAllocation.Defaults
	return []int64{int64(d.NodesPerTenant), int64(d.LBPoolPerTenant)}
}

// planDeletion prints which claims keep a pool from being deleted.
func (a *app) planDeletion(i *inventory.Inventory, p *inventory.Pool) error {
	l := a.claimList(i, func(c *inventory.Claim) bool { return c.Pool == p.Key && len(c.Ranges) > 0 })
	if a.output == "table" || a.output == "wide" {
		text := "would be accepted: no claim owns an address of the pool"
		if len(l.items) > 0 {
			text = fmt.Sprintf("would be denied: %s addresses of the pool", map[bool]string{true: "1 claim owns", false: fmt.Sprintf("%d claims own", len(l.items))}[len(l.items) == 1])
		}
		if _, err := fmt.Fprintln(a.out, text); err != nil {
			return err
		}
	}
	if len(l.items) > 0 || a.output == "json" || a.output == "yaml" {
		if err := l.print(a); err != nil {
			return err
		}
	}
	if len(l.items) > 0 {
		return findings{}
	}
	return nil
}
