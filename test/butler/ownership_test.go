package butler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// owners are the entries of managedFields of an allocation that is Ready: manager,
// operation and subresource of each.
func owners(t *testing.T, ns, name string) string {
	t.Helper()
	var entries []string
	suite.AwaitObject(t, admin, claim(ns, name, 1), func(a *v1alpha1.IPAllocation) string {
		entries = nil
		for _, f := range a.ManagedFields {
			entries = append(entries, strings.TrimSpace(f.Manager+" "+string(f.Operation)+" "+f.Subresource))
		}
		if !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady) {
			return "it is not Ready"
		}
		return ""
	})
	slices.Sort(entries)
	return strings.Join(entries, ", ")
}

func TestIPAllocation_ManagedFieldsOfApply(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.26.0.0/24"))
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"created", []string{"create"}, ""},
		{"applied", []string{"apply", "--server-side", "--field-manager=flux"}, "butler-ipam Update status, flux Apply"},
		{"applied-by-the-client", []string{"apply"}, "butler-ipam Update status, kubectl-client-side-apply Update"},
	} {
		suite.Kubectl(t, cluster, manifest(tc.name, ""), append(tc.args, "-n", ns, "-f", "-")...)
		if got := owners(t, ns, tc.name); got != tc.want {
			t.Errorf("%s: managedFields of %q, want %q", tc.name, got, tc.want)
		}
	}
}

// The writes of the status bring nothing else with them: what they leave out was not
// taken away.
func TestIPAllocation_ManagedFieldsAfterStatusWrites(t *testing.T) {
	ns := namespace(t)
	apply := func(manifest string) {
		suite.Kubectl(t, cluster, manifest, "apply", "--server-side", "-n", ns, "-f", "-")
	}
	objects := func(metadata, reuseDelay string) string {
		applied := "metadata: {" + metadata + ", "
		return strings.Replace(manifest("a", ""), "metadata: {", applied, 1) + "---\n" +
			"{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: NetworkPool, " + applied + "name: pool}, spec: {cidr: 10.28.0.0/24" + reuseDelay + "}}\n"
	}
	apply(objects("labels: {a: mine, b: mine}, annotations: {a: mine, b: mine}, finalizers: [example.com/mine]", ", reuseDelay: 1s"))
	owners(t, ns, "a") // the allocation is Ready
	suite.AwaitObject(t, admin, pool(ns, ""), func(p *v1alpha1.NetworkPool) string {
		if p.Status.AllocatedIPs == 0 {
			return "its status is not written"
		}
		return ""
	})
	second := func(metadata string) string { // with the pool present, the webhook adds the finalizer of the allocation too
		return strings.Replace(manifest("b", ""), "metadata: {", "metadata: {"+metadata+", ", 1)
	}
	apply(second("labels: {a: mine, b: mine}, annotations: {a: mine, b: mine}, finalizers: [example.com/mine]"))
	owners(t, ns, "b")
	before := answer(t, ns, "a")
	const fewer = "labels: {a: mine}, annotations: {a: mine}"
	apply(objects(fewer, ""))
	apply(second(fewer))
	for _, object := range []string{"ipa/a", "ipa/b", "np/pool"} {
		const fields = "{.metadata.labels.a} {.metadata.labels.b} {.metadata.annotations.a} {.metadata.annotations.b} {.metadata.finalizers} {.spec.reuseDelay}"
		finalizer := v1alpha1.FinalizerIPAllocation
		if object == "np/pool" {
			finalizer = v1alpha1.FinalizerNetworkPool
		}
		want := fmt.Sprintf("mine  mine  [%q] ", finalizer)
		// An apply that gives up all finalizers that it owned also removes the one that
		// the webhook added at create: no manager owns that one. The reconciler adds it
		// again.
		suite.Eventually(t, suite.Soon, func(context.Context) error {
			text, _ := suite.Kubectl(t, cluster, "", "get", object, "-n", ns, "-o=jsonpath="+fields)
			if text != want {
				return fmt.Errorf("after an apply that leaves labels, annotations, finalizers and reuseDelay out, those of %s are %q, want %q", object, text, want)
			}
			return nil
		})
	}
	if diff := cmp.Diff(before, answer(t, ns, "a")); diff != "" {
		t.Errorf("applying changed the allocation (-before +after):\n%s", diff)
	}
}

// As with every object that was there before somebody applied it.
func TestIPAllocation_CreateThenApply(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.27.0.0/24"))
	labelled := func(labels string) string {
		return strings.Replace(manifest("a", ""), "metadata: {", "metadata: {labels: {"+labels+"}, ", 1)
	}
	label := func(key string) string {
		text, _ := suite.Kubectl(t, cluster, "", "get", "ipa", "-n", ns, "a", "-o=jsonpath={.metadata.labels."+key+"}")
		return text
	}
	suite.Kubectl(t, cluster, labelled("a: created"), "create", "-n", ns, "-f", "-")
	owners(t, ns, "a") // it is Ready
	before := answer(t, ns, "a")

	_, stderr, err := cluster.Kubectl(t.Context(), labelled("a: applied"), "apply", "--server-side", "-n", ns, "-f", "-")
	if err == nil || !strings.Contains(stderr, `conflict with "before-first-apply"`) {
		t.Errorf("an apply of another value answers %v, want a conflict with who was there before", err)
	}
	suite.Kubectl(t, cluster, labelled("a: created, b: mine"), "apply", "--server-side", "-n", ns, "-f", "-")
	suite.Kubectl(t, cluster, labelled("a: created"), "apply", "--server-side", "-n", ns, "-f", "-")
	if a, b := label("a"), label("b"); a != "created" || b != "" {
		t.Errorf("labels a and b are %q and %q after an apply that no longer has b", a, b)
	}
	if diff := cmp.Diff(before, answer(t, ns, "a")); diff != "" {
		t.Errorf("applying changed the allocation (-before +after):\n%s", diff)
	}
}
