package butler

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// answer is what of an allocation no update may change.
func answer(t *testing.T, namespace, name string) map[string]any {
	t.Helper()
	a := &v1alpha1.IPAllocation{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, a); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(a.Spec)
	if err != nil {
		t.Fatal(err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(raw, &spec); err != nil {
		t.Fatal(err)
	}
	spec["grant"], spec["origin"] = a.Annotations[v1alpha1.AnnotationGrant], a.Annotations[v1alpha1.AnnotationOrigin]
	return spec
}

func TestIPAllocation_EveryUpdateKeepsAddresses(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.20.0.0/24"))
	bare := manifest("a", "")
	suite.Kubectl(t, cluster, bare, "create", "-n", ns, "-f", "-")
	before := answer(t, ns, "a")
	if before["pinnedRange"] == nil || before["grant"] == "" {
		t.Fatalf("create answered %v, want a range and a token", before)
	}
	stored := func() *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("butler.butlerlabs.dev/v1alpha1")
		o.SetKind("IPAllocation")
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "a"}, o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, tc := range []struct {
		name string
		do   func()
	}{
		{"kubectl apply --server-side", func() { suite.Kubectl(t, cluster, bare, "apply", "--server-side", "-n", ns, "-f", "-") }},
		{"kubectl apply --server-side again", func() { suite.Kubectl(t, cluster, bare, "apply", "--server-side", "-n", ns, "-f", "-") }},
		{"kubectl apply", func() { suite.Kubectl(t, cluster, bare, "apply", "-n", ns, "-f", "-") }},
		{"kubectl apply again", func() { suite.Kubectl(t, cluster, bare, "apply", "-n", ns, "-f", "-") }},
		{"kubectl replace without the range", func() { suite.Kubectl(t, cluster, bare, "replace", "-n", ns, "-f", "-") }},
		{"a PUT without range, count and annotations", func() {
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // the manager writes to it too
				o := stored()
				unstructured.RemoveNestedField(o.Object, "spec", "pinnedRange")
				unstructured.RemoveNestedField(o.Object, "spec", "count")
				o.SetAnnotations(nil)
				return admin.Update(t.Context(), o)
			})
			if err != nil {
				t.Error(err)
			}
		}},
		{"a merge patch that takes the range away", func() {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"pinnedRange":null,"count":null}}`))
			if err := admin.Patch(t.Context(), stored(), patch); err != nil {
				t.Error(err)
			}
		}},
		{"a merge patch that takes the annotations away", func() {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))
			if err := admin.Patch(t.Context(), stored(), patch); err != nil {
				t.Error(err)
			}
		}},
		{"an apply that owned the range and gives it up", func() {
			owned := fmt.Sprintf(", count: 5, pinnedRange: {startAddress: %s, endAddress: %s}",
				before["pinnedRange"].(map[string]any)["startAddress"], before["pinnedRange"].(map[string]any)["endAddress"])
			suite.Kubectl(t, cluster, manifest("a", owned), "apply", "--server-side", "--force-conflicts", "-n", ns, "-f", "-", "--field-manager=owner")
			suite.Kubectl(t, cluster, bare, "apply", "--server-side", "--force-conflicts", "-n", ns, "-f", "-", "--field-manager=owner")
		}},
		{"new labels", func() { suite.Kubectl(t, cluster, "", "label", "ipa", "-n", ns, "a", "mine=yes") }},
	} {
		tc.do()
		if diff := cmp.Diff(before, answer(t, ns, "a")); diff != "" {
			t.Fatalf("%s changed the allocation (-before +after):\n%s", tc.name, diff)
		}
	}
}

func TestIPAllocation_ApplyAgainWritesNothing(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.21.0.0/24"))
	for name, args := range map[string][]string{
		"server-side": {"apply", "--server-side", "-n", ns, "-f", "-", "-o=jsonpath={.metadata.generation} {.metadata.managedFields[?(@.operation==\"Apply\")].time}"},
		"client-side": {"apply", "-n", ns, "-f", "-", "-o=jsonpath={.metadata.generation} {.metadata.annotations}"},
	} {
		first, _ := suite.Kubectl(t, cluster, manifest(name, ", count: 4"), args...)
		second, _ := suite.Kubectl(t, cluster, manifest(name, ", count: 4"), args...)
		if first != second || first == "" {
			t.Errorf("%s: %q, then %q", name, first, second)
		}
	}
}

func TestIPAllocation_ImmutableFields(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.22.0.0/24"), claim(ns, "a", 4))
	for name, tc := range map[string]struct {
		patch string
		want  []string
	}{
		"another pool":        {`{"spec":{"poolRef":{"name":"other"}}}`, []string{"spec.poolRef", "while addresses are owned"}},
		"another cluster":     {`{"spec":{"tenantClusterRef":{"name":"other"}}}`, []string{"spec.tenantClusterRef", "while addresses are owned"}},
		"another type":        {`{"spec":{"type":"loadbalancer"}}`, []string{"spec.type", "while addresses are owned"}},
		"another count":       {`{"spec":{"count":5}}`, []string{"spec.count", "while addresses are owned"}},
		"another range":       {`{"spec":{"pinnedRange":{"startAddress":"10.22.0.1"}}}`, []string{"spec.pinnedRange", "create another"}},
		"half of the range":   {`{"spec":{"pinnedRange":{"endAddress":null}}}`, []string{"spec.pinnedRange.endAddress"}},
		"another token":       {`{"metadata":{"annotations":{"butler.butlerlabs.dev/grant":"AAAAAAAAAAAAAAAA"}}}`, []string{"metadata.annotations[butler.butlerlabs.dev/grant]", "omit it"}},
		"another origin":      {`{"metadata":{"annotations":{"butler.butlerlabs.dev/origin":"pinned"}}}`, []string{"metadata.annotations[butler.butlerlabs.dev/origin]", `write "auto"`}},
		"several at once":     {`{"spec":{"poolRef":{"name":"other"},"type":"loadbalancer","count":5}}`, []string{"spec.poolRef", "spec.type", "spec.count"}},
		"a pool with no name": {`{"spec":{"poolRef":{"name":""}}}`, []string{"spec.poolRef"}},
	} {
		a := &v1alpha1.IPAllocation{}
		a.Namespace, a.Name = ns, "a"
		err := admin.Patch(t.Context(), a, client.RawPatch(types.MergePatchType, []byte(tc.patch)))
		t.Run(name, func(t *testing.T) { suite.RequireDenied(t, err, 422, tc.want...) })
	}
}

// GitOps tools compare a dry run of what they have with what is stored, again and again.
func TestIPAllocation_DryRunShowsNoDrift(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.23.0.0/24"))
	suite.Kubectl(t, cluster, manifest("a", ""), "apply", "--server-side", "--field-manager=flux", "-n", ns, "-f", "-")
	for range 3 {
		want, _ := suite.Kubectl(t, cluster, "", "get", "ipa", "-n", ns, "a", "-o", "yaml")
		got, _ := suite.Kubectl(t, cluster, manifest("a", ""), "apply", "--server-side", "--field-manager=flux", "--dry-run=server", "-n", ns, "-f", "-", "-o", "yaml")
		if diff := cmp.Diff(withoutTimes(t, want), withoutTimes(t, got)); diff != "" {
			t.Errorf("drift (-stored +dry run):\n%s", diff)
		}
	}
	if diff, _ := suite.Kubectl(t, cluster, manifest("a", ""), "diff", "--server-side", "--field-manager=flux", "-n", ns, "-f", "-"); diff != "" {
		t.Errorf("kubectl diff:\n%s", diff)
	}
}

// withoutTimes is labels, annotations and spec of an object.
func withoutTimes(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	metadata, _ := o["metadata"].(map[string]any)
	return map[string]any{"spec": o["spec"], "labels": metadata["labels"], "annotations": metadata["annotations"]}
}

func TestIPAllocation_DryRunsTakeNothing(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.24.0.0/28"))
	for i, err := range byMany(16, 1000, func(i int) error {
		a := claim(ns, fmt.Sprintf("a-%d", i), 4)
		if i%2 == 0 {
			a = pinned(ns, "a-", "10.24.0.4-10.24.0.7")
		}
		if err := admin.Create(t.Context(), a, client.DryRunAll); err != nil {
			return err
		}
		if addressesOf(a) == "" || a.Annotations[v1alpha1.AnnotationGrant] != "" {
			return fmt.Errorf("range %q, token %q: want a range, and no token", addressesOf(a), a.Annotations[v1alpha1.AnnotationGrant])
		}
		return nil
	}) {
		if err != nil {
			t.Fatalf("dry run %d: %v", i, err)
		}
	}
	if lines := openGrants(t, ns); len(lines) > 0 {
		t.Errorf("%d grants are open, want none", len(lines))
	}
	suite.Create(t, admin, claim(ns, "all", 16))
}

// Whether a claim may have what it names before its pool is there is looked at when that
// comes, whatever its author says of where it has it from.
func TestIPAllocation_OriginWrittenByHand(t *testing.T) {
	for name, tc := range map[string]struct{ addresses, says string }{
		"reserved": {"10.38.0.1-10.38.0.2", "is reserved"},
		"outside":  {"10.39.0.1-10.39.0.2", "is outside the pool"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			a := pinned(ns, "a", tc.addresses)
			suite.Create(t, admin, a)
			suite.Change(t, admin, a, func(a *v1alpha1.IPAllocation) {
				metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationOrigin, v1alpha1.OriginPinned)
			})
			p := pool(ns, "10.38.0.0/24")
			p.Spec.Reserved = []v1alpha1.ReservedRange{{CIDR: "10.38.0.0/30"}}
			suite.Create(t, admin, p)
			says(t, suite.Soon, a, tc.says)
			if a.Status.Phase != v1alpha1.PhaseFailed {
				t.Errorf("the allocation is %s", a.Status.Phase)
			}
		})
	}
}
