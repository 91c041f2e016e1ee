package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

func (a *app) newPlan() *cobra.Command {
	var change inventory.PoolChange
	var deletes bool
	var out string
	cmd := &cobra.Command{
		Use: "plan POOL", Short: "Show what a change of a NetworkPool would do", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePools,
		Annotations: map[string]string{annotationFindings: "true"},
		Long: `Show whether a change of a NetworkPool, or its deletion, would be denied, who owns the addresses that it concerns, and what is free before and after.

The command changes nothing in the cluster. If you may patch or delete the pool, it also shows the response of the API server to a dry run.

The patch of --out has only the fields of the change. A list in the patch replaces the stored list, also what another person has added to the list since then. The command
writes no patch if the change would be denied or has no effect.

The exit code is 1 if the change would be denied, and 2 if the command fails.`,
		Example: `  kubectl ipam plan vlan40 --reserve 10.40.2.0/24
  kubectl ipam plan vlan40 --cidr 10.40.0.0/20 --out patch.yaml
  kubectl ipam plan vlan40 --ranges 10.40.1.0-10.40.7.255
  kubectl ipam plan vlan40 --delete`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if deletes && out != "" {
				return fmt.Errorf("--delete and --out=%s: use one of them; a deletion has no patch", out)
			}
			return a.plan(cmd.Context(), args[0], change, deletes, out)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&change.Reserve, "reserve", nil, "add these `networks` to spec.reserved")
	flags.StringSliceVar(&change.Unreserve, "unreserve", nil, "remove these `networks` from spec.reserved")
	flags.StringVar(&change.CIDR, "cidr", "", "set spec.cidr to this `network`")
	flags.StringSliceVar(&change.Ranges, "ranges", nil, "set spec.tenantAllocation.ranges to these `ranges`, as FIRST-LAST")
	flags.BoolVar(&deletes, "delete", false, "delete the pool")
	flags.StringVar(&out, "out", "", "write the change as a patch to this new `file`, for kubectl patch --type=merge --patch-file")
	_ = cmd.RegisterFlagCompletionFunc("unreserve", a.completeReserved)
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
	stored, err := inventory.NetworkPoolOf(p)
	if err != nil {
		return err
	}
	if deletes {
		plan := i.PlanDeletion(p)
		printed := planOutput{item: report.NewPlan(i, p, plan), server: a.dryRunDeletion(ctx, p.Key)}
		if printed.server.verdict == accepted { // the owners leave for a reason that the inventory does not contain
			printed.item.Denied = nil
		}
		return a.printPlan(printed)
	}
	updated, err := change.Apply(stored)
	if err != nil {
		return err
	}
	patch, err := inventory.SpecPatch(stored, updated)
	if err != nil {
		return err
	}
	if patch == nil {
		if out != "" {
			a.warn("--out=%s is not written, because the change has no effect", out)
		}
		free := i.Free(p, 1)
		return a.printPlan(planOutput{item: report.NewPlan(i, p, inventory.Plan{Before: free, After: free}), unchanged: true})
	}
	plan := i.PlanUpdate(p, updated)
	printed := planOutput{item: report.NewPlan(i, p, plan)}
	if len(plan.Faults) == 0 {
		printed.free, printed.server = freeText(stored, plan), a.dryRunPatch(ctx, p.Key, patch)
	}
	if out != "" && printed.isDenied() {
		a.warn("--out=%s is not written, because the change would be denied", out)
	} else if out != "" {
		if err := writePatch(out, p.Key, patch); err != nil {
			return err
		}
	}
	return a.printPlan(printed)
}

// writePatch writes a patch of a NetworkPool as YAML to a new file.
func writePatch(name string, pool inventory.Key, patch []byte) error {
	text, err := yaml.JSONToYAML(patch)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("--out=%s: the file exists: remove the file, or name a new file", name)
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = fmt.Fprintf(file, `# kubectl patch %s -n %s %s --type=merge --patch-file=FILE
# A list in this patch replaces the stored list: plan again if the list has changed since.
%s`, pool.Resource, pool.Namespace, pool.Name, text)
	return errors.Join(err, file.Close())
}

// verdict is the decision of the API server about a dry run.
type verdict int

const (
	undecided verdict = iota // no dry run, or the dry run failed
	accepted
	denied
)

// response is the response of the API server to a dry run.
type response struct {
	verdict  verdict
	text     string
	warnings []string
}

// newResponse returns the response for the error of a dry run.
func newResponse(err error) response {
	switch {
	case err == nil:
		return response{verdict: accepted, text: "accepted"}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return response{verdict: denied, text: "denied: " + err.Error()}
	}
	return response{text: "failed: " + err.Error()}
}

// dryRunPatch sends a merge patch of a NetworkPool to the API server as a dry run.
func (a *app) dryRunPatch(ctx context.Context, pool inventory.Key, patch []byte) response {
	return a.dryRun(ctx, "patch", pool, func(client *rest.RESTClient) *rest.Request {
		return client.Patch(types.MergePatchType).Param("fieldManager", fieldManager).Body(patch)
	})
}

// dryRunDeletion sends the deletion of a NetworkPool to the API server as a dry run.
func (a *app) dryRunDeletion(ctx context.Context, pool inventory.Key) response {
	return a.dryRun(ctx, "delete", pool, func(client *rest.RESTClient) *rest.Request { return client.Delete() })
}

// dryRun sends a request for a NetworkPool to the API server as a dry run, if the user
// has the right to the verb of the request.
func (a *app) dryRun(ctx context.Context, verb string, pool inventory.Key, newRequest func(*rest.RESTClient) *rest.Request) response {
	config, err := a.config()
	if err != nil {
		return newResponse(err)
	}
	warned := &warnings{}
	config.WarningHandler = warned
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return newResponse(err)
	}
	if !cluster.May(ctx, client, verb, pool) {
		return response{text: fmt.Sprintf("skipped, because you may not %s the pool", verb)}
	}
	path := []string{"apis", butlerv1.GroupVersion.Group, butlerv1.GroupVersion.Version, "namespaces", pool.Namespace, "networkpools", pool.Name}
	answer := newResponse(newRequest(client).AbsPath(path...).Param("dryRun", metav1.DryRunAll).Do(ctx).Error())
	answer.warnings = warned.texts
	return answer
}

// warnings collects the distinct warnings in the responses of the API server.
type warnings struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(code int, _, text string) {
	if code == warningCode && text != "" && !slices.Contains(w.texts, text) {
		w.texts = append(w.texts, text)
	}
}

// warningCode is the code of warnings by the API server, as in k8s.io/client-go/rest.
const warningCode = 299

// planOutput is the output of plan.
type planOutput struct {
	item      report.Plan
	unchanged bool   // the pool has the values of the change already
	free      string // lines about free addresses
	server    response
}

func (o planOutput) isDenied() bool { return len(o.item.Denied) > 0 || o.server.verdict == denied }

// printPlan prints the effect of a change in the format of the flags.
func (a *app) printPlan(o planOutput) error {
	o.item.Server, o.item.Warnings = o.server.text, o.server.warnings
	var err error
	if a.output == "json" || a.output == "yaml" {
		err = a.printDocument(o.item)
	} else {
		var text string
		if text, err = a.planText(o); err == nil {
			_, err = fmt.Fprint(a.out, text)
		}
	}
	if err == nil && o.isDenied() {
		return findings{}
	}
	return err
}

// planText returns the effect of a change as text.
func (a *app) planText(o planOutput) (string, error) {
	var text strings.Builder
	for _, reason := range o.item.Denied {
		fmt.Fprintf(&text, "would be denied: %s\n", safetext.Line(reason))
	}
	switch {
	case o.unchanged:
		text.WriteString("no effect: the pool has these values already\n")
	case !o.isDenied():
		text.WriteString("would be accepted\n")
	case len(o.item.Denied) == 0:
		text.WriteString("would be denied by the API server\n")
	}
	if owners := o.item.Owners; len(owners) > 0 {
		tenants, addresses := map[string]bool{}, []allocator.Range{}
		for _, owner := range owners {
			if owner.Tenant != "" {
				tenants[owner.Tenant] = true
			}
			addresses = append(addresses, owner.Exact)
		}
		fmt.Fprintf(&text, "%s of %s %s %s of these addresses:\n", allocator.Counted(len(owners), "range"), allocator.Counted(len(tenants), "tenant"), allocator.Agree(len(owners), "owns", "own"), allocator.AmountOf(addresses...))
		if err := segmentList("", owners, false).printTable(&text, a.output == "wide", !a.noHeaders); err != nil {
			return "", err
		}
	}
	text.WriteString(o.free)
	if o.server.text != "" {
		fmt.Fprintf(&text, "dry run by the API server: %s\n", safetext.Line(o.server.text))
	}
	for _, warning := range o.server.warnings {
		fmt.Fprintf(&text, "warning: %s\n", safetext.Line(warning))
	}
	return text.String(), nil
}

// freeText returns the lines about the free addresses before and after an update.
func freeText(p *butlerv1.NetworkPool, plan inventory.Plan) string {
	then := "then"
	if len(plan.Owners) > 0 {
		then = "without these owners"
	}
	text := fmt.Sprintf("free: %s now, %s %s\n", allocator.AmountOf(plan.Before...), allocator.AmountOf(plan.After...), then)
	if sizes := inventory.DefaultSizes(p); len(sizes) > 0 {
		before, err1 := inventory.CountFits(plan.Before, nil, sizes)
		after, err2 := inventory.CountFits(plan.After, nil, sizes)
		if err := errors.Join(err1, err2); err == nil {
			text += fmt.Sprintf("tenants of %d nodes and %d load balancer addresses that fit: %s now, %s %s\n", sizes[0], sizes[1], before.Text(), after.Text(), then)
		}
	}
	return text
}
