package main

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/exporter"
)

func (a *app) newExport() *cobra.Command {
	return &cobra.Command{
		Use: "export POOL", Short: "Write the addresses of a pool as a file that import reads", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Long: `Write the reservations and the claims of a pool, in address order, as CSV or YAML: ranges, tenants, names, types, teams and descriptions.

kubectl ipam import reads the file back without loss, for instance in another cluster that has the pool. Left out with a warning: claims that do not own the
addresses that they name (no addresses yet, in conflict, or outside the pool), claims being deleted, and ProxyVIPs of Services.`,
		Example: `  kubectl ipam export vlan40
  kubectl ipam export vlan40 -o yaml`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.export(cmd.Context(), args[0]) },
	}
}

func (a *app) export(ctx context.Context, pool string) error {
	i, p, err := a.loadPool(ctx, pool)
	if err != nil {
		return err
	}
	entries, leftOut := exporter.Export(i, p)
	for _, reason := range leftOut {
		a.warn("left out: %s", reason)
	}
	write := addressfile.WriteCSV
	if a.output == "yaml" {
		write = addressfile.WriteYAML
	}
	var text bytes.Buffer
	if err := write(&text, entries); err != nil {
		return err
	}
	_, err = a.forPrograms().Write(text.Bytes())
	return err
}
