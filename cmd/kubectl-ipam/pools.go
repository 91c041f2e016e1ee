package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
)

// poolItem is a pool in the output.
type poolItem struct {
	Kind          string   `json:"kind"`
	Namespace     string   `json:"namespace,omitempty"`
	Name          string   `json:"name"`
	RoutingDomain string   `json:"routingDomain,omitempty"`
	Ranges        []string `json:"ranges"`
	// Counts of addresses; they saturate at the largest int64.
	Size          int64    `json:"size"`
	Free          int64    `json:"free"`
	Allocated     int64    `json:"allocated"`
	Granted       int64    `json:"granted"` // to creates whose claims are not stored yet
	LargestFree   int64    `json:"largestFree"`
	FreeRuns      int      `json:"freeRuns"`
	Fragmentation int32    `json:"fragmentationPercent"`
	Claims        int      `json:"claims"`
	Notes         []string `json:"notes,omitempty"`

	exact     allocator.Amounts
	qualified string
}

func (a *app) newPools() *cobra.Command {
	return &cobra.Command{
		Use: "pools", Aliases: []string{"pool"}, Short: "List pools with their free addresses", Args: cobra.NoArgs,
		Long: `List the pools of all kinds with their size, free addresses and longest free run.

A pool counts an address as allocated whoever owns it: pools of one routing domain that overlap share their addresses. Reserved addresses
are not part of the size; addresses in cooldown are not free.`,
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

func (a *app) poolList(i *inventory.Inventory) list[poolItem] {
	l := list[poolItem]{
		kind: "PoolList", empty: "no pools",
		name: func(p poolItem) string { return strings.ToLower(p.Kind) + "/" + p.qualified },
		columns: []column[poolItem]{
			{"POOL", false, func(p poolItem) string { return p.qualified }},
			{"KIND", false, func(p poolItem) string { return p.Kind }},
			{"RANGES", false, func(p poolItem) string { return shortened(p.Ranges) }},
			{"DOMAIN", false, func(p poolItem) string { return p.RoutingDomain }},
			{"SIZE", false, func(p poolItem) string { return allocator.Amount(p.Size, p.exact.Total) }},
			{"FREE", false, func(p poolItem) string { return allocator.Amount(p.Free, p.exact.Available) }},
			{"LARGEST", false, func(p poolItem) string { return allocator.Amount(p.LargestFree, p.exact.LargestFree) }},
			{"FRAGMENTATION", true, func(p poolItem) string { return fmt.Sprintf("%d%%", p.Fragmentation) }},
			{"GRANTED", true, func(p poolItem) string { return fmt.Sprint(p.Granted) }},
			{"CLAIMS", true, func(p poolItem) string { return fmt.Sprint(p.Claims) }},
			{"USED", false, func(p poolItem) string { return a.bar(p) }},
			{"NOTE", false, func(p poolItem) string { return strings.Join(p.Notes, "; ") }},
		},
	}
	for _, p := range i.Pools() {
		if !a.selects(p.Key, p.Domain) {
			continue
		}
		u := i.Usage(p.Key)
		item := poolItem{
			Kind: inventory.KindOf(p.Key), Namespace: p.Key.Namespace, Name: p.Key.Name, RoutingDomain: p.Domain, Ranges: rangeTexts(p.Ranges), Size: u.Total, Free: u.Available,
			Allocated: u.Allocated, Granted: u.Granted, LargestFree: u.LargestFree, FreeRuns: u.FreeRuns, Fragmentation: u.Fragmentation, Claims: u.Claims, exact: u.Exact,
			Notes: notesOf(i, p), qualified: inventory.NameOf(p.Key),
		}
		l.items = append(l.items, item)
	}
	return l
}

// notesOf lists what is remarkable about a pool.
func notesOf(i *inventory.Inventory, p *inventory.Pool) (notes []string) {
	if p.Fault != "" {
		notes = append(notes, "offers nothing: "+p.Fault)
	}
	if p.Deleting {
		notes = append(notes, "is being deleted")
	}
	if p.Paused {
		notes = append(notes, "paused")
	}
	if p.Manual {
		notes = append(notes, "allocates only requested addresses")
	}
	if others := i.Overlapping(p); len(others) > 0 {
		names := make([]string, len(others))
		for n, other := range others {
			names[n] = other.Name
		}
		notes = append(notes, "shares addresses with "+listed(names, 3))
	}
	return notes
}

// listed joins texts, of which it names at most limit.
func listed(texts []string, limit int) string {
	if len(texts) <= limit {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(texts[:limit], ", "), len(texts)-limit)
}

// barWidth is the number of signs of a bar.
const barWidth = 10

// bar returns the allocated share of a pool, or the number of owned addresses where the share says nothing.
func (a *app) bar(p poolItem) string {
	switch {
	case p.Size == 0:
		return "-"
	case p.Size == math.MaxInt64, p.exact.Total > 1<<32:
		return fmt.Sprintf("%s owned", allocator.Amount(p.Allocated, p.exact.Allocated))
	}
	share := p.exact.Allocated / p.exact.Total
	percent := fmt.Sprintf("%3d%%", int(share*100))
	if a.output != "table" && a.output != "wide" {
		return strings.TrimSpace(percent)
	}
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

// rangeTexts returns the ranges as networks where they are networks.
func rangeTexts(ranges []allocator.Range) []string {
	texts := []string{}
	for _, r := range ranges {
		texts = append(texts, rangeText(r))
	}
	return texts
}

// rangeText returns a range as a network, if it is one and has several addresses.
func rangeText(r allocator.Range) string {
	if network, ok := r.Prefix(); ok && r.First != r.Last {
		return network.String()
	}
	return r.String()
}

// shortened joins the first two texts, and counts the others.
func shortened(texts []string) string {
	if len(texts) > 2 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:2], ","), len(texts)-2)
	}
	return strings.Join(slices.Clone(texts), ",")
}
