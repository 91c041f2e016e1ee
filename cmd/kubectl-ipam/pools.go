package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

func (a *app) newPools() *cobra.Command {
	return &cobra.Command{
		Use: "pools", Aliases: []string{"pool"}, Short: "List pools with their free addresses", Args: cobra.NoArgs,
		Long: `List the pools of all kinds with their size, free addresses and largest free block.

Pools of one routing domain that overlap share their addresses: each counts an address that a claim of the other owns as allocated. Reserved
addresses are not part of the size; addresses in cooldown are not free.`,
		Example: `  kubectl ipam pools
  kubectl ipam pools -o wide
  kubectl ipam pools -n butler-system -o csv`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := a.load(cmd.Context())
			if err != nil {
				return err
			}
			return a.poolList(i).print(a)
		},
	}
}

func (a *app) poolList(i *inventory.Inventory) list[report.Pool] {
	l := list[report.Pool]{
		kind: report.KindPoolList, empty: "no pools" + a.inWhichNamespace(poolNamespaces(i)),
		name: func(p report.Pool) string { return kubectlName(p.Object) },
		columns: []column[report.Pool]{
			{"POOL", false, func(p report.Pool) string { return p.Qualified }},
			{"KIND", false, func(p report.Pool) string { return p.Kind }},
			{"RANGES", false, func(p report.Pool) string { return shortened(p.Ranges) }},
			{"DOMAIN", false, func(p report.Pool) string { return p.RoutingDomain }},
			{"SIZE", false, func(p report.Pool) string { return allocator.Amount(p.Size, p.Exact.Total) }},
			{"FREE", false, func(p report.Pool) string { return allocator.Amount(p.Free, p.Exact.Available) }},
			{"LARGEST", false, func(p report.Pool) string { return allocator.Amount(p.LargestFree, p.Exact.LargestFree) }},
			{"FRAGMENTATION", true, func(p report.Pool) string { return fmt.Sprintf("%d%%", p.Fragmentation) }},
			{"GRANTED", true, func(p report.Pool) string { return fmt.Sprint(p.Granted) }},
			{"CLAIMS", true, func(p report.Pool) string { return fmt.Sprint(p.Claims) }},
			{"USED", false, func(p report.Pool) string { return a.bar(p) }},
			{"NOTE", false, func(p report.Pool) string { return strings.Join(p.Notes, "; ") }},
		},
		csv: []csvColumn[report.Pool]{
			{name: "SIZE", value: func(p report.Pool) string { total, _, _, _ := p.Exact.Decimals(); return total }},
			{name: "FREE", value: func(p report.Pool) string { _, _, free, _ := p.Exact.Decimals(); return free }},
			{name: "LARGEST", value: func(p report.Pool) string { _, _, _, largest := p.Exact.Decimals(); return largest }},
			{name: "FRAGMENTATION", value: func(p report.Pool) string { return fmt.Sprint(p.Fragmentation) }},
			{name: "USED", value: func(p report.Pool) string { _, allocated, _, _ := p.Exact.Decimals(); return allocated }},
			{name: "RANGES", value: func(p report.Pool) string { return strings.Join(p.Ranges, ",") }},
		},
	}
	for _, p := range i.Pools() {
		if !a.selects(p.Key, p.Domain) {
			continue
		}
		l.items = append(l.items, report.NewPool(i, p))
	}
	return l
}

// barWidth is the number of signs of a bar.
const barWidth = 10

// bar returns the allocated share of a pool. For a pool of more than 2^32 addresses bar
// returns the number of owned addresses, because the share would always be 0 %.
func (a *app) bar(p report.Pool) string {
	switch {
	case p.Size == 0:
		return "-"
	case p.Size == math.MaxInt64, p.Exact.Total > 1<<32:
		return fmt.Sprintf("%s owned", allocator.Amount(p.Allocated, p.Exact.Allocated))
	}
	share := p.Exact.Allocated / p.Exact.Total
	percent := fmt.Sprintf("%3d%%", p.Percent)
	full, half, empty := "█", "▌", "░"
	if !a.isTerminal() {
		full, half, empty = "#", "#", "."
	}
	whole := int(share * barWidth)
	text := strings.Repeat(full, whole)
	if whole < barWidth && p.Allocated > 0 && (share*barWidth-float64(whole) >= 0.5 || whole == 0) {
		text, whole = text+half, whole+1
	}
	return text + strings.Repeat(empty, barWidth-whole) + " " + percent
}

// shortened joins the first two texts and appends the number of further texts.
func shortened(texts []string) string {
	if len(texts) > 2 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:2], ","), len(texts)-2)
	}
	return strings.Join(slices.Clone(texts), ",")
}
