package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// rangeItem is a range in the output.
type rangeItem struct {
	Range string `json:"range"`
	First string `json:"first"`
	Last  string `json:"last"`
	Size  int64  `json:"size"` // number of addresses; saturates at the largest int64

	Digits report.Digits `json:"exact,omitempty"`

	exact allocator.Range
}

func newRangeItem(r allocator.Range) rangeItem {
	return rangeItem{Range: r.String(), First: r.First.String(), Last: r.Last.String(), Size: r.Size(), Digits: report.DigitsOf("size", r), exact: r}
}

func (a *app) newFree() *cobra.Command {
	var least int64
	cmd := &cobra.Command{
		Use: "free POOL", Short: "List the free blocks of a pool", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Long: `List the blocks of free addresses of a pool, in address order, each as large as it can be.`,
		Example: `  kubectl ipam free vlan40
  kubectl ipam free vlan40 --min 8`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if least < 1 {
				return fmt.Errorf("--min=%d: use 1 or more addresses", least)
			}
			i, p, err := a.loadPool(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			l := list[rangeItem]{
				kind: "FreeRangeList", empty: fmt.Sprintf("no free block of %s in %s%s", allocator.Counted(least, "address"), args[0], soonFreeText(i, p)),
				name: func(r rangeItem) string { return r.Range },
				columns: []column[rangeItem]{
					{"RANGE", false, func(r rangeItem) string { return r.exact.String() }},
					{"SIZE", false, func(r rangeItem) string { return allocator.AmountOf(r.exact) }},
				},
			}
			l.csv = []csvColumn[rangeItem]{{name: "SIZE", value: func(r rangeItem) string { return allocator.DecimalOf(r.exact) }}}
			for _, r := range i.Free(p, least) {
				l.items = append(l.items, newRangeItem(r))
			}
			return l.print(a)
		},
	}
	cmd.Flags().Int64Var(&least, "min", 1, "only blocks of at least this `number` of addresses")
	return cmd
}
