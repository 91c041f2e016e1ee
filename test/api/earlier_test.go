package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// The schema of an earlier release knew patterns where there are rules now. What was
// stored under it must live on: a finalizer, a label or a status that cannot be written
// would hang its object for ever.
func TestEarlierSchema_ObjectsCanBeWritten(t *testing.T) {
	const group = "earlier.butlerlabs.dev"
	crd := &unstructured.Unstructured{}
	text, err := os.ReadFile("../../config/crd/butler.butlerlabs.dev_networkpools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		t.Fatal(err)
	}
	crd.SetName("networkpools." + group)
	if err := errors.Join(
		unstructured.SetNestedField(crd.Object, group, "spec", "group"),
		unstructured.SetNestedField(crd.Object, []any{}, "spec", "names", "shortNames"),
	); err != nil {
		t.Fatal(err)
	}
	today := crd.DeepCopy()
	removeRules(crd.Object)
	suite.CreateForTest(t, admin, crd)

	earlier := func(spec string) *unstructured.Unstructured {
		o := pool(t, spec)
		o.SetAPIVersion(group + "/v1alpha1")
		return o
	}
	o := earlier(`{cidr: 10.40.0.5/24, reserved: [{cidr: 10.40.0.1/28}], tenantAllocation: {start: 10.40.0.64}}`)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		return admin.Create(ctx, o)
	})

	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		// The API server writes conditions into the object meanwhile.
		if err := admin.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		today.SetResourceVersion(crd.GetResourceVersion())
		return admin.Update(ctx, today)
	})
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		err := admin.Create(ctx, earlier(`{cidr: nonsense}`), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			return errors.Join(errors.New("the rules of today are not in force yet"), err)
		}
		return nil
	})

	write := func(what string, change func(*unstructured.Unstructured) error, want ...string) {
		t.Helper()
		changed := o.DeepCopy()
		if err := change(changed); err != nil {
			t.Fatal(err)
		}
		err := admin.Update(t.Context(), changed, client.DryRunAll)
		if diff := diffFaults(t, want, err); diff != "" {
			t.Errorf("%s: faults (-want +got):\n%s", what, diff)
		}
	}
	write("a label and a finalizer", func(o *unstructured.Unstructured) error {
		o.SetLabels(map[string]string{"a": "b"})
		o.SetFinalizers([]string{"butler.butlerlabs.dev/networkpool"})
		return nil
	})
	write("another field", func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, "lab", "spec", "routingDomain")
	})
	write("the same network without host bits", func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, "10.40.0.0/24", "spec", "cidr")
	})
	write("another network with host bits", func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, "10.40.0.5/23", "spec", "cidr")
	}, `spec.cidr: Invalid value: "10.40.0.5/23": has bits set after the prefix: write the first address of the network before it, as in 10.40.0.0/24 for 10.40.0.5/24`)

	if err := unstructured.SetNestedField(o.Object, int64(3), "status", "totalIPs"); err != nil {
		t.Fatal(err)
	}
	if err := admin.Status().Update(t.Context(), o); err != nil {
		t.Errorf("status: %v", err)
	}
}

// removeRules takes every CEL rule out of a schema.
func removeRules(node any) {
	switch node := node.(type) {
	case map[string]any:
		delete(node, "x-kubernetes-validations")
		for _, child := range node {
			removeRules(child)
		}
	case []any:
		for _, child := range node {
			removeRules(child)
		}
	}
}

// After an upgrade of the CRDs every object of an earlier schema can be deleted, and one
// that can be served is: whatever the API server answers to a write of its status.
func TestEarlierSchema_ObjectsAreServedAndDeleted(t *testing.T) {
	t.Parallel()
	own, c := suite.StartSandbox(t, sandbox.Options{})
	manager, err := own.AddManager(t.Context()) // where there are pools and no journal, it allocates nothing for two minutes
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"networkpools.butler.butlerlabs.dev", "ipallocations.butler.butlerlabs.dev", "proxyippools.novaedge.io", "proxyvips.novaedge.io",
		"ippools.ipam.metal3.io", "ipclaims.ipam.metal3.io",
	} {
		suite.RemoveRules(t, c, name)
	}
	const (
		networkPool = `{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: NetworkPool, metadata: {namespace: butler-system, name: %s}, spec: {%s}}`
		allocation  = `{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: IPAllocation, metadata: {namespace: butler-system, name: %s},
			spec: {poolRef: {name: %s}, tenantClusterRef: {name: a, namespace: b}, type: nodes, count: 4%s}}`
		proxyIPPool = `{apiVersion: novaedge.io/v1alpha1, kind: ProxyIPPool, metadata: {name: %s}, spec: {autoAssign: true%s}}`
		proxyVIP    = `{apiVersion: novaedge.io/v1alpha1, kind: ProxyVIP, metadata: {name: %s}, spec: {mode: BGP, ports: [80]%s}}`
		ipPool      = `{apiVersion: ipam.metal3.io/v1alpha1, kind: IPPool, metadata: {namespace: butler-system, name: %s}, spec: {namePrefix: p, pools: [%s]}}`
		ipClaim     = `{apiVersion: ipam.metal3.io/v1alpha1, kind: IPClaim, metadata: {namespace: butler-system, name: %s}, spec: {pool: {%s}}}`
	)
	read := func(format string, args ...any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(fmt.Appendf(nil, format, args...), &o.Object); err != nil {
			t.Fatal(err)
		}
		return o
	}
	allocated := func(pool, network string) *unstructured.Unstructured {
		o := read(allocation, pool, pool, "")
		o.Object["status"] = read("{phase: Allocated, cidr: %s.32/30, startAddress: %s.32, endAddress: %s.35, allocatedCount: 4}", network, network, network).Object
		return o
	}
	objects := []*unstructured.Unstructured{
		read(networkPool, "served", "cidr: 10.71.0.5/24, reserved: [{cidr: 10.71.0.1/28}], reuseDelay: 1h"),
		read(networkPool, "open", "cidr: 10.72.0.0/24, tenantAllocation: {start: 10.72.0.64}"),
		read(networkPool, "outside", "cidr: 10.73.0.0/24, reserved: [{cidr: 10.99.0.0/28}], tenantAllocation: {ranges: [{start: 10.99.0.1, end: 10.99.0.2}]}"),
		read(networkPool, "unreadable", "cidr: 10.74.0.0/24, reserved: [{cidr: 999.0.0.0/99}], tenantAllocation: {ranges: [{start: 999.0.0.1, end: 999.0.0.2}]}"),
		read(networkPool, "lan", "cidr: 999.0.0.0/99"),
		allocated("served", "10.71.0"), allocated("open", "10.72.0"), allocated("outside", "10.73.0"), allocated("unreadable", "10.74.0"),
		read(allocation, "unnumbered", "served", ", pinnedRange: {startAddress: 10.71.0.999, endAddress: 10.71.0.2}"),
		read(proxyIPPool, "served", ", cidrs: [10.75.0.7/28]"),
		read(proxyIPPool, "unreadable", ", cidrs: [lan]"),
		read(proxyIPPool, "empty", ""),
		read(proxyVIP, "served", ", address: 10.75.0.3/32, poolRef: {name: served}"),
		read(proxyVIP, "unreadable", ", address: lan, poolRef: {name: served}"),
		read(proxyVIP, "empty", ""),
		read(ipPool, "empty", "{}"),
		read(ipClaim, "empty", ""),
	}
	for _, o := range objects {
		o.SetFinalizers(map[string][]string{
			"NetworkPool": {"butler.butlerlabs.dev/networkpool"}, "IPAllocation": {"butler.butlerlabs.dev/ipallocation"},
		}[o.GetKind()])
		status := o.Object["status"]
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return c.Create(ctx, o) })
		if o.Object["status"] = status; status != nil {
			if err := c.Status().Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := own.InstallCRDs(t.Context(), "config/crd"); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*unstructured.Unstructured{read(networkPool, "new", "cidr: lan"), read(proxyVIP, "new", ", address: lan"), read(ipPool, "new", "{}")} {
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
			if err := c.Create(ctx, o.DeepCopy(), client.DryRunAll); !apierrors.IsInvalid(err) {
				return errors.Join(errors.New("the rules of today are not in force yet"), err)
			}
			return nil
		})
	}
	if err := errors.Join(manager.Start(), manager.Ready(t.Context()), own.InstallWebhooks(t.Context())); err != nil {
		t.Fatal(err)
	}

	is := func(kind, name, field, want string) {
		t.Helper()
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
			text, _, err := own.Kubectl(ctx, "", "get", kind, name, "-n", "butler-system", "-o=jsonpath={"+field+"}")
			if err == nil && text != want {
				err = fmt.Errorf("%s of %s %s is %q, want %q", field, kind, name, text, want)
			}
			return err
		})
	}
	added := read(allocation, "new", "served", "")
	if err := c.Create(t.Context(), added); err != nil {
		t.Fatal(err)
	}
	objects = append(objects, added)
	is("ipallocation", "served", ".spec.pinnedRange.startAddress", "10.71.0.32")
	for _, name := range []string{"served", "new"} {
		is("ipallocation", name, `.status.conditions[?(@.type=="Ready")].status`, "True")
	}
	is("networkpool", "served", ".status.allocatedIPs", "8")
	is("proxyvip", "served", `.status.conditions[?(@.type=="Bound")].status`, "True")
	is("proxyippool", "served", ".status.allocated", "1")

	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // in its status or, where the API server refuses that, in an event
		told, _, err := own.Kubectl(ctx, "", "get", "networkpools,events", "-n", "butler-system", "-o=jsonpath="+
			`{.items[?(@.metadata.name=="unreadable")].status.conditions[?(@.type=="Ready")].message} {.items[?(@.reason=="StatusRefused")].message}`)
		if err == nil && !strings.Contains(told, "[0]") {
			err = fmt.Errorf("of what is wrong with pool unreadable one is told: %q", told)
		}
		return err
	})

	suite.Delete(t, c, added.DeepCopy())
	is("networkpool", "served", ".status.releases[0].name", "new")
	slices.Reverse(objects) // pools last
	for _, o := range objects {
		if err := client.IgnoreNotFound(c.Delete(t.Context(), o)); err != nil {
			t.Errorf("delete %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	for _, o := range objects {
		suite.AwaitGone(t, c, o)
	}
}
