package api

import (
	"context"
	"errors"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/test/suite"
)

// The schema of an earlier release knew patterns where there are rules now. What was stored under it must live on: a finalizer, a
// label or a status that cannot be written would hang its object for ever.
func TestObjectsOfEarlierSchemasCanStillBeWritten(t *testing.T) {
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
	suite.Lend(t, admin, crd)

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
