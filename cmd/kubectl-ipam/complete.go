package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// completion completes an argument or the value of a flag.
type completion = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// fileFlags are the flags whose values are files or directories. The shell completes
// them.
var fileFlags = []string{"certificate-authority", "client-certificate", "client-key", "kubeconfig", "log", "manifests", "out", "tenant-map-file"}

// completeFlags makes the shell offer no file names for the flags of a command that have
// no completion and are no files.
func completeFlags(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, completes := cmd.GetFlagCompletionFunc(f.Name); !completes && f.NoOptDefVal == "" && !slices.Contains(fileFlags, f.Name) {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	})
}

// completePersistentFlags registers the completions of the flags of all commands.
func (a *app) completePersistentFlags(root *cobra.Command) {
	for flag, names := range map[string]func(*clientcmdapi.Config) []string{
		"context": func(c *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Contexts)) },
		"cluster": func(c *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Clusters)) },
		"user":    func(c *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.AuthInfos)) },
	} {
		_ = root.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			config, err := a.kubeconfig.Load()
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return beginningWith(prefix, names(config)), cobra.ShellCompDirectiveNoFileComp
		})
	}
	_ = root.RegisterFlagCompletionFunc("domain", a.completeBy(domainNames, true))
	_ = root.RegisterFlagCompletionFunc("namespace", a.completeBy(poolNamespaces, true))
	completeFlags(root)
}

// beginningWith lists the texts that begin with a prefix.
func beginningWith(prefix string, texts []string) (list []string) {
	for _, text := range texts {
		if strings.HasPrefix(text, prefix) {
			list = append(list, text)
		}
	}
	return list
}

// completeBy returns a completion with names of an inventory. With poolsOnly, the
// inventory has no claims.
func (a *app) completeBy(names func(*inventory.Inventory) []string, poolsOnly bool) completion {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		i, err := a.read(cmd.Context(), poolsOnly)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return beginningWith(prefix, names(i)), cobra.ShellCompDirectiveNoFileComp
	}
}

// domainNames lists the routing domains with a name.
func domainNames(i *inventory.Inventory) []string {
	return slices.DeleteFunc(i.Domains(), func(domain string) bool { return domain == "" })
}

// poolNamespaces lists the namespaces of the pools.
func poolNamespaces(i *inventory.Inventory) []string {
	return distinct(i.Pools(), func(p *inventory.Pool) string { return p.Key.Namespace })
}

// claimNamespaces lists the namespaces of the claims.
func claimNamespaces(i *inventory.Inventory) []string {
	return distinct(i.Claims(), func(c *inventory.Claim) string { return c.Key.Namespace })
}

// tenantNamesOf lists the tenants of the claims, as namespace/name.
func tenantNamesOf(i *inventory.Inventory) []string {
	return distinct(i.Claims(), func(c *inventory.Claim) string { return c.Tenant })
}

// distinct lists the names of the elements of a list, each once, in order, without "".
func distinct[T any](list []T, nameOf func(T) string) (names []string) {
	for _, e := range list {
		if name := nameOf(e); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ownerNames lists what the argument of who may be beside an address: tenants, and claims
// as kind/namespace/name.
func ownerNames(i *inventory.Inventory) []string {
	names := tenantNamesOf(i)
	for _, c := range i.Claims() {
		names = append(names, claimArgument(c)+"\t"+string(c.State))
	}
	return names
}

// completeOwners completes the argument of who.
func (a *app) completeOwners(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeBy(ownerNames, false)(cmd, args, prefix)
}

// completePools completes the name of a pool: NAME if no other pool has the name,
// otherwise a longer argument. The flags -n and --domain select the pools.
func (a *app) completePools(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	i, err := a.loadPools(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	a.domainSet = cmd.Flags().Changed("domain")
	return a.poolArguments(i, prefix), cobra.ShellCompDirectiveNoFileComp
}

// poolArguments lists an argument for each selected pool, with the kind: the first of
// NAME, NAMESPACE/NAME and KIND/NAMESPACE/NAME that begins with a prefix and names no
// other pool.
func (a *app) poolArguments(i *inventory.Inventory, prefix string) (list []string) {
	for _, p := range i.Pools() {
		if !a.selects(p.Key, p.Domain) {
			continue
		}
		kind := inventory.KindOf(p.Key)
		for _, argument := range []string{p.Key.Name, inventory.NameOf(p.Key), strings.ToLower(kind) + "/" + inventory.NameOf(p.Key)} {
			if found, err := a.findPool(i, argument); strings.HasPrefix(argument, prefix) && err == nil && found == p {
				list = append(list, argument+"\t"+kind)
				break
			}
		}
	}
	return list
}

// completeReserved completes a network in spec.reserved of the pool in the first
// argument.
func (a *app) completeReserved(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	i, err := a.loadPools(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	p, err := a.findPool(i, args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	pool, ok := p.Object.(*butlerv1.NetworkPool)
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	before := prefix[:strings.LastIndex(prefix, ",")+1] // the flag takes several networks
	var networks []string
	for _, reserved := range pool.Spec.Reserved {
		networks = append(networks, before+reserved.CIDR)
	}
	return beginningWith(prefix, networks), cobra.ShellCompDirectiveNoFileComp
}

// completeProviders completes the name of a ProviderConfig: NAME in the namespace of the
// flags, otherwise NAMESPACE/NAME.
func (a *app) completeProviders(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	o, err := a.options()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, err := cluster.ListProviders(cmd.Context(), o)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for n, name := range names {
		if own, here := strings.CutPrefix(name, a.tenantsNamespace()+"/"); here {
			names[n] = own
		}
	}
	return beginningWith(prefix, names), cobra.ShellCompDirectiveNoFileComp
}
