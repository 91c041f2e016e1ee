package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"

	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

// streams are the streams of the process.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app contains the streams and the flags of the commands.
type app struct {
	streams         // text for people: control characters are visible (safetext.Writer)
	raw     streams // the streams of the process
	now     func() time.Time

	kubeconfig       *clientcmd.ClientConfigLoadingRules
	overrides        clientcmd.ConfigOverrides
	allNamespaces    bool
	domain           string
	domainSet        bool
	managerNamespace string
	output           string
	noHeaders        bool
}

func newApp(s streams) *app {
	return &app{streams: streams{s.in, safetext.Writer{Out: s.out}, safetext.Writer{Out: s.err}}, raw: s, now: time.Now, kubeconfig: clientcmd.NewDefaultClientConfigLoadingRules()}
}

func newRoot(s streams) *cobra.Command {
	a := newApp(s)
	root := &cobra.Command{
		Use:   "kubectl-ipam",
		Short: "Show who owns which IP address",
		Long: `Show pools, claims and addresses of Butler IPAM, across all kinds: IPAllocation, IPClaim, IPAddressClaim and ProxyVIP.

The commands read API objects only, and write nothing, except import --apply. They count and choose addresses by the code of the manager. Kinds that you
may not list in all namespaces are read in one namespace: that of the flag -n, or of your kubeconfig.`,
		Example: `  kubectl ipam pools
  kubectl ipam who 10.40.1.60
  kubectl ipam map vlan40`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ipam"},
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.checkFlags(cmd) },
		Version:           version,
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return explainFlagError(err) })
	flags := root.PersistentFlags()
	flags.StringVar(&a.kubeconfig.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "`file` with the access to the cluster")
	clientcmd.BindOverrideFlags(&a.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.BoolVarP(&a.allNamespaces, "all-namespaces", "A", false, "all namespaces: the default, unless -n names one")
	flags.StringVar(&a.domain, "domain", "", "only the routing domain with this `name`; \"\" is the default routing domain")
	flags.StringVar(&a.managerNamespace, "manager-namespace", "butler-ipam-system", "`namespace` of the manager, with the journal of open grants")
	flags.StringVarP(&a.output, "output", "o", "table", "output `format`: "+strings.Join(formats, ", "))
	flags.BoolVar(&a.noHeaders, "no-headers", false, "print tables without headers")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	cobra.AddTemplateFunc("withoutFlagsOfKubectl", withoutFlagsOfKubectl)
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{.InheritedFlags.FlagUsages |", "{{withoutFlagsOfKubectl .InheritedFlags |", 1))
	a.completePersistentFlags(root)
	root.AddCommand(a.newPools(), a.newMap(), a.newFree(), a.newWho(), a.newClaims(), a.newFit(), a.newPlan(), a.newCheck(), a.newImport(), a.newExport(), a.newUI(), a.newVersion())
	for _, cmd := range root.Commands() {
		completeFlags(cmd)
		if strings.Contains(cmd.Use, " POOL") {
			cmd.Long += "\n\nPOOL is NAME, NAMESPACE/NAME, KIND/NAME or KIND/NAMESPACE/NAME. The flag -n restricts NAME and KIND/NAME to a namespace. If several pools have the name, the namespace of your kubeconfig selects one."
		}
	}
	return root
}

// flagsOfCommands are the persistent flags in the help of each command. The help of the
// root command lists all flags.
var flagsOfCommands = []string{"all-namespaces", "context", "domain", "kubeconfig", "manager-namespace", "namespace", "no-headers", "output"}

// withoutFlagsOfKubectl returns the usage of the flags that the commands read themselves,
// and refers to the further flags, which kubectl has too.
func withoutFlagsOfKubectl(flags *pflag.FlagSet) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range flagsOfCommands {
		if f := flags.Lookup(name); f != nil {
			shown.AddFlag(f)
		}
	}
	return shown.FlagUsages() + "\nFlags of kubectl, such as --as and --request-timeout, apply too: kubectl ipam --help"
}

// versionItem is the output of version.
type versionItem struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Version    string `json:"version"`
}

func (a *app) newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Example: "  kubectl ipam version",
		RunE: func(*cobra.Command, []string) error {
			if a.output != "table" {
				return a.printDocument(versionItem{report.APIVersion, "Version", version})
			}
			_, err := fmt.Fprintln(a.out, version)
			return err
		},
	}
}

// flagRules maps types of flags to the rule for their values.
var flagRules = map[string]string{"int": "write a whole number", "int64": "write a whole number", "bool": "write true or false", "duration": "write a duration such as 90s, 10m or 1h30m"}

// explainFlagError replaces the error of the Go parser for the value of a flag by the
// rule for the value.
func explainFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	rule, known := flagRules[invalid.GetFlag().Value.Type()]
	switch {
	case !known:
		return err
	case errors.Is(err, strconv.ErrRange):
		rule = "the number is too large"
	}
	return fmt.Errorf("--%s=%s: %s", invalid.GetFlag().Name, invalid.GetValue(), rule)
}

// checkFlags checks the flags of the root command.
func (a *app) checkFlags(cmd *cobra.Command) error {
	if allowed := formatsOf(cmd); !slices.Contains(allowed, a.output) {
		return fmt.Errorf("--output=%s: %s takes %s", a.output, cmd.Name(), strings.Join(allowed, ", "))
	}
	a.domainSet = cmd.Flags().Changed("domain")
	return nil
}

// inDomain reports whether the flags select a routing domain.
func (a *app) inDomain(domain string) bool { return !a.domainSet || a.domain == domain }

// isTerminal reports whether the output is a terminal.
func (a *app) isTerminal() bool {
	f, ok := a.raw.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// forPrograms returns the stream for a document that programs read. Only on a terminal
// are its control characters visible.
func (a *app) forPrograms() io.Writer {
	if a.isTerminal() {
		return a.out
	}
	return a.raw.out
}

// loadPool reads the cluster and returns the pool with the name in an argument.
func (a *app) loadPool(ctx context.Context, argument string) (*inventory.Inventory, *inventory.Pool, error) {
	i, err := a.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, err := a.findPool(i, argument)
	if err == nil {
		a.warnOfHiddenOwners(i, p)
	}
	return i, p, err
}

// findPool returns the pool with the name in an argument: NAME, NAMESPACE/NAME, KIND/NAME
// or KIND/NAMESPACE/NAME. The flag -n restricts an argument without NAMESPACE. If several
// pools have the name, findPool returns the pool in the namespace of the flags or of the
// kubeconfig.
func (a *app) findPool(i *inventory.Inventory, argument string) (*inventory.Pool, error) {
	if parts := strings.Split(argument, "/"); len(parts) > 3 || len(parts) == 3 && !isPoolKind(parts[0]) {
		return nil, fmt.Errorf("pool %q: write NAME, NAMESPACE/NAME, KIND/NAME or KIND/NAMESPACE/NAME", argument)
	}
	found := slices.DeleteFunc(i.Pools(), func(p *inventory.Pool) bool {
		return !inventory.IsNamed(p.Key, argument) || !a.inDomain(p.Domain) || !a.selects(p.Key, p.Domain) && !namesNamespace(p.Key, argument)
	})
	if len(found) > 1 {
		if here := slices.DeleteFunc(slices.Clone(found), func(p *inventory.Pool) bool { return p.Key.Namespace != a.namespace() }); len(here) == 1 {
			return here[0], nil
		}
		var names []string
		for _, p := range found {
			names = append(names, inventory.KindOf(p.Key)+"/"+inventory.NameOf(p.Key))
		}
		return nil, fmt.Errorf("%d pools are named %q: write %s", len(found), argument, strings.Join(names, ", or "))
	}
	if len(found) == 0 {
		return nil, a.noPool(i, argument)
	}
	return found[0], nil
}

// namesNamespace reports whether an argument contains the namespace of an object that it
// names.
func namesNamespace(k inventory.Key, argument string) bool {
	return k.Namespace != "" && strings.HasSuffix(strings.ToLower("/"+argument), strings.ToLower("/"+inventory.NameOf(k)))
}

// noPool returns the error for an argument that names no pool. The error names the pools
// that the author may mean: those of the name elsewhere, or of a similar name.
func (a *app) noPool(i *inventory.Inventory, argument string) error {
	where := a.inWhichDomain()
	if n := a.overrides.Context.Namespace; n != "" && !a.allNamespaces && !strings.Contains(argument, "/") {
		where = fmt.Sprintf(" in namespace %q%s", n, where)
	}
	var elsewhere, names []string
	meant := map[string][]string{} // name -> arguments
	for _, p := range i.Pools() {
		full := i.ArgumentOf(p.Key)
		switch {
		case inventory.IsNamed(p.Key, argument) && !a.inDomain(p.Domain):
			elsewhere = append(elsewhere, fmt.Sprintf("%s of routing domain %q", full, p.Domain))
		case inventory.IsNamed(p.Key, argument), strings.EqualFold(p.Key.Name, argument[strings.LastIndex(argument, "/")+1:]):
			elsewhere = append(elsewhere, full)
		}
		for _, name := range []string{p.Key.Name, inventory.NameOf(p.Key)} {
			names, meant[name] = append(names, name), append(meant[name], full)
		}
	}
	if len(elsewhere) == 0 {
		for _, name := range inventory.Nearest(argument, names) {
			elsewhere = append(elsewhere, meant[name]...)
		}
	}
	text := fmt.Sprintf("no pool %q%s among those that you may read", argument, where)
	if slices.Sort(elsewhere); len(elsewhere) > 0 {
		return fmt.Errorf("%s: did you mean %s?", text, report.Listed(slices.Compact(elsewhere), 3))
	}
	return fmt.Errorf("%s: list them with kubectl ipam pools", text)
}

func isPoolKind(name string) bool {
	return slices.ContainsFunc(kinds.Pools(), func(k *kinds.Kind) bool {
		return inventory.IsKind(inventory.Key{Resource: k.Resource}, name)
	})
}
