package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

// namespace returns the namespace of the flags, or of the kubeconfig.
func (a *app) namespace() string {
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.kubeconfig, &a.overrides).Namespace()
	if err != nil {
		return metav1.NamespaceDefault
	}
	return namespace
}

// config returns the access to the cluster.
func (a *app) config() (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.kubeconfig, &a.overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	return cluster.Configure(config, "kubectl-ipam/"+version), nil
}

// options returns the options with which the commands read the cluster.
func (a *app) options() (cluster.Options, error) {
	config, err := a.config()
	p := newProgress(a.raw.err, time.Now)
	step := func(objects int, done bool) {
		text := "read " + allocator.Counted(objects, "object")
		if done {
			p.end(text)
			return
		}
		p.step(objects, 0, text)
	}
	return cluster.Options{Config: config, Namespace: a.namespace(), ManagerNamespace: a.managerNamespace, Now: a.now, Warn: a.warn, Progress: step}, err
}

// load reads the pools, the claims and the journal.
func (a *app) load(ctx context.Context) (*inventory.Inventory, error) { return a.read(ctx, false) }

// loadPools reads only the pools.
func (a *app) loadPools(ctx context.Context) (*inventory.Inventory, error) { return a.read(ctx, true) }

func (a *app) read(ctx context.Context, poolsOnly bool) (*inventory.Inventory, error) {
	o, err := a.options()
	if err != nil {
		return nil, err
	}
	return cluster.Read(ctx, o, poolsOnly)
}

// warn prints a line with the prefix "warning: " to stderr.
func (a *app) warn(format string, values ...any) {
	_, _ = fmt.Fprintln(a.err, "warning:", safetext.Line(fmt.Sprintf(format, values...)))
}

// warnOfHiddenOwners prints a warning about a pool whose addresses are owned by claims
// that the user may not list.
func (a *app) warnOfHiddenOwners(i *inventory.Inventory, p *inventory.Pool) {
	if note := i.NoteOfHiddenOwners(p); note != "" {
		a.warn("%s: %s", inventory.TitleOf(p.Key), note)
	}
}

// inWhichNamespace returns the namespace of the flags for the end of a sentence about a
// list without items, and the namespaces that the author may mean: those of a similar
// name, or, if no object is in the namespace, some of those with objects. The result is
// "" without the flag.
func (a *app) inWhichNamespace(used []string) string {
	namespace := a.overrides.Context.Namespace
	if a.allNamespaces || namespace == "" {
		return ""
	}
	text := fmt.Sprintf(" in namespace %q", namespace)
	if slices.Contains(used, namespace) {
		return text
	}
	if nearest := inventory.Nearest(namespace, used); len(nearest) > 0 {
		return fmt.Sprintf("%s: did you mean %s?", text, report.Listed(nearest, 3))
	}
	if len(used) > 0 {
		text += ": others have some, as " + report.Listed(used, 3)
	}
	return text
}

// selects reports whether the flags select an object in a namespace.
func (a *app) selects(k inventory.Key, domain string) bool {
	return a.inDomain(domain) && (a.allNamespaces || a.overrides.Context.Namespace == "" || k.Namespace == "" || k.Namespace == a.overrides.Context.Namespace)
}
