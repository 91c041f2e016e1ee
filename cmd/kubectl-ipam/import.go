package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/importer"
)

// importKinds maps the values of --as to kinds.
var importKinds = map[string]addressfile.Kind{
	"allocations": addressfile.KindIPAllocation, "reserved": addressfile.KindReserved, "preallocations": addressfile.KindPreAllocation, "ipclaims": addressfile.KindIPClaim,
	"ipaddressclaims": addressfile.KindIPAddressClaim, "proxyvips": addressfile.KindProxyVIP,
}

// importFlags are the flags of import.
type importFlags struct {
	format, pool, as, purpose, tenantNamespace, tenantNames, tenantMap, manifests string
	columns, tenants, domains                                                     []string
	skipOutside, apply                                                            bool
}

func (a *app) newImport() *cobra.Command {
	var f importFlags
	as := slices.Sorted(maps.Keys(importKinds))
	cmd := &cobra.Command{
		Use: "import FILE --to POOL", Short: "Import the addresses of another address management tool into a pool", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{annotationFindings: "true"},
		Long: `Show what the rows of a file become in a pool, and every conflict of the rows with one another and with the cluster. FILE is a CSV file that another
address management tool has exported, or a file of kubectl ipam export; "-" is the standard input. The first line of a CSV file is the header. A warning names the
columns that have content and no meaning.

Without --as, a row becomes an object of the kind in the file. If the file has no kind, the kind of the pool decides:

  NetworkPool   IPAllocations for rows with a tenant, entries of spec.reserved for others
  IPPool        entries of spec.preAllocations, which no claim gets
  ProxyIPPool   ProxyVIPs

A row whose status says that its addresses are free, or that describes a network, becomes nothing. Rows that can have addresses in use and are not imported are
left out, with the reason.

With --tenant-map-file, the tenants of the file are those in a CSV file. If the file lacks a tenant, the command fails and writes the file, or completes it, as a
form: replace NAMESPACE in it, and run the command again.

Consecutive addresses of one tenant become one IPAllocation. Names of claims derive from the pool and the range, so that a second import changes nothing.

Without --apply and --manifests, and as long as there is a conflict, the command writes nothing. With --apply it updates the pool first and then creates the
claims. It changes no claim that exists. If it fails, what is done stays, and the next run does the rest. The exit code is 1 if there are conflicts
or rows are left out, and 2 if the command fails.

Here --as is not the flag of kubectl that impersonates a user.`,
		Example: `  kubectl ipam import addresses.csv --to vlan40
  kubectl ipam import addresses.csv --to vlan40 -o wide
  kubectl ipam import addresses.csv --to vlan40 --format netbox --tenant-namespace team-1 --vrf-map red=
  kubectl ipam import addresses.csv --to vlan40 --map Team=tenant --tenant-map Acme=team-1/acme --skip-outside
  kubectl ipam import addresses.csv --to vlan40 --tenant-names slug --tenant-namespace team-1
  kubectl ipam import addresses.csv --to vlan40 --tenant-map-file tenants.csv
  kubectl ipam import addresses.csv --to vlan40 --as reserved --manifests out
  kubectl ipam import addresses.csv --to vlan40 --apply`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.importFile(cmd.Context(), args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.pool, "to", "", "`pool` that gets the addresses, as NAME, NAMESPACE/NAME or KIND/NAMESPACE/NAME")
	flags.StringVar(&f.format, "format", "auto", "`format` of the file: "+strings.Join(addressfile.Formats, ", ")+"; auto looks at the header")
	flags.StringArrayVar(&f.columns, "map", nil, "`COLUMN=FIELD`: what a column of the file is, such as \"Who=tenant\": "+strings.Join(addressfile.FieldNames, ", "))
	flags.StringVar(&f.as, "as", "", "`kind` that every row becomes: "+strings.Join(as, ", "))
	flags.StringVar(&f.purpose, "type", "nodes", "`type` of IPAllocations, if the file has none: nodes or loadbalancer")
	flags.StringArrayVar(&f.tenants, "tenant-map", nil, "`TENANT=NAMESPACE/NAME`: a tenant of the file is this tenant; TENANT may be empty, for rows without one")
	flags.StringVar(&f.tenantNamespace, "tenant-namespace", "", "`namespace` of tenants for which the file has only a name")
	flags.StringVar(&f.tenantMap, "tenant-map-file", "", "`file` with the columns tenant and namespace/name; the command writes the missing tenants to it")
	flags.StringVar(&f.tenantNames, "tenant-names", "exact", "`rule` for the names of tenants: exact, or slug, which turns Acme Corp into acme-corp")
	flags.StringArrayVar(&f.domains, "vrf-map", nil, "`VRF=DOMAIN`: a VRF of the file is this routing domain; DOMAIN may be empty, for the default routing domain")
	flags.BoolVar(&f.skipOutside, "skip-outside", false, "leave out rows outside the pool, instead of reporting them as conflicts")
	flags.StringVar(&f.manifests, "manifests", "", "write the objects as files for kubectl apply to this empty or new `directory`")
	flags.BoolVar(&f.apply, "apply", false, "write the objects to the cluster")
	cmd.MarkFlagsMutuallyExclusive("manifests", "apply")
	_ = cmd.MarkFlagRequired("to")
	_ = cmd.RegisterFlagCompletionFunc("to", a.completePools)
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions([]string{string(butlerv1.TypeNodes), string(butlerv1.TypeLoadBalancer)}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("tenant-names", cobra.FixedCompletions(tenantNames, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(addressfile.Formats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(as, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) importFile(ctx context.Context, path string, f importFlags) error {
	if !slices.Contains(tenantNames, f.tenantNames) {
		return fmt.Errorf("--tenant-names=%s: use %s", f.tenantNames, strings.Join(tenantNames, " or "))
	}
	options := importer.Options{
		Type: butlerv1.IPAllocationType(f.purpose), TenantNamespace: f.tenantNamespace, SlugTenants: f.tenantNames == namesSlug, SkipOutside: f.skipOutside,
	}
	if options.As = importKinds[f.as]; options.As == "" && f.as != "" {
		return fmt.Errorf("--as=%s: use one of %s; to impersonate a user use another kubeconfig", f.as, strings.Join(slices.Sorted(maps.Keys(importKinds)), ", "))
	}
	var err error
	mapping := addressfile.Mapping{Format: f.format}
	if mapping.Columns, err = parsePairs("map", f.columns); err != nil {
		return err
	}
	if options.Tenants, err = parsePairs("tenant-map", f.tenants); err != nil {
		return err
	}
	listed, err := readTenantMap(f.tenantMap, options.Tenants)
	if err != nil {
		return err
	}
	if options.Domains, err = parsePairs("vrf-map", f.domains); err != nil {
		return err
	}
	file, err := a.readAddresses(path, mapping)
	if err != nil {
		return err
	}
	a.warnIgnored(file)
	i, p, err := a.loadPool(ctx, f.pool)
	if err != nil {
		return err
	}
	plan, err := importer.NewPlan(i, p, file, options)
	if err != nil {
		return explainTenants(fmt.Errorf("%s: %w", path, err), f.tenantMap, listed)
	}
	item := newImportItem(file, plan)
	if len(plan.Conflicts) > 0 {
		if err := a.printImport(item, plan, f); err != nil {
			return err
		}
		return findings{}
	}
	switch {
	case plan.Empty():
	case f.manifests != "":
		if err := writeManifests(f.manifests, plan); err != nil {
			return err
		}
		item.Written = true
	case f.apply:
		if err := a.apply(ctx, plan); err != nil {
			return err
		}
		item.Written = true
	}
	if err := a.printImport(item, plan, f); err != nil {
		return err
	}
	if len(plan.LeftOut) > 0 {
		return findings{}
	}
	return nil
}

// parsePairs parses the values KEY=VALUE of a flag. The last "=" separates key and value.
func parsePairs(flag string, pairs []string) (map[string]string, error) {
	parsed := map[string]string{}
	for _, pair := range pairs {
		n := strings.LastIndex(pair, "=")
		if n < 0 {
			return nil, fmt.Errorf("--%s=%s: write two texts with = between them", flag, pair)
		}
		parsed[pair[:n]] = pair[n+1:]
	}
	return parsed, nil
}

// readAddresses reads a file, or the standard input.
func (a *app) readAddresses(path string, mapping addressfile.Mapping) (*addressfile.File, error) {
	in := a.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	file, err := addressfile.Read(in, mapping)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}
