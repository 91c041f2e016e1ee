package clients

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"butlerlabs.dev/ipam/test/suite"
)

// The example has three pools, and with its default variables nine claims: two
// IPAllocations, three IPAddressClaims, three IPClaims, a ProxyVIP.
const (
	examplePools  = 3
	exampleClaims = 9
)

// created are the counts of the first apply of the example.
var created = counts{added: examplePools + exampleClaims}

// loadbalancer is the name of an IPAllocation of the example, as list has it.
const loadbalancer = butlerGroup + " IPAllocation/loadbalancer"

func TestOpenTofu_Apply(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]string{
		"the example":       nil,
		"server-side apply": {"wait = true", "wait = true\n  server_side_apply = true", "wait     = true", "wait = true\n  server_side_apply = true", "wait  = true", "wait = true\n  server_side_apply = true"},
		// The claims then come in any order with their pools, and some before them.
		"without references": withoutReferences,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTofu(t, edits...)
			w.apply(created)
			given := ranges(t, w.namespace, exampleClaims)
			w.planned(false)
			settled := versions(t, w.namespace)
			w.apply(counts{})
			if diff := cmp.Diff(settled, versions(t, w.namespace)); diff != "" {
				t.Errorf("the second apply wrote (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(given, ranges(t, w.namespace, exampleClaims)); diff != "" {
				t.Errorf("the second apply changed ranges (-before +after):\n%s", diff)
			}
			w.must("destroy", "-input=false", "-auto-approve")
			nothingLeft(t, w.namespace)
		})
	}
}

// withoutReferences has the claims name their pools as texts, which orders nothing, and
// wait for nothing.
var withoutReferences = []string{
	"kubectl_manifest.network_pool.name", `"terraform"`, "kubectl_manifest.network_pool.kind", `"NetworkPool"`, "kubectl_manifest.ip_pool.name", `"terraform"`,
	"kubectl_manifest.proxy_pool.name", "var.routing_domain", "wait = true", "", "wait     = true", "", "wait  = true", "",
}

func TestOpenTofu_Parallel(t *testing.T) {
	t.Parallel()
	w := newTofu(t)
	allocations := map[string]int{}
	for i := range 20 {
		allocations[fmt.Sprintf("parallel-%d", i)] = 1 + i%3
	}
	w.variables["allocations"], w.variables["machines"] = allocations, 20
	w.variables["cidr"] = "10.60.0.0/24"
	const claims = 20 + 20 + 20 + 1
	w.apply(counts{added: examplePools + claims}, "-parallelism=64")
	ranges(t, w.namespace, claims)
	w.planned(false)

	// A pool that is full denies what is too much, with its numbers, and serves all else.
	w.variables["cidr"] = "10.60.0.0/24"
	allocations["too-large"] = 500
	w.denied("500 addresses requested", "free")
	delete(allocations, "too-large")
	w.planned(false)

	w.must("destroy", "-input=false", "-auto-approve", "-parallelism=64")
	nothingLeft(t, w.namespace)
}

func TestOpenTofu_Change(t *testing.T) {
	t.Parallel()
	w := newTofu(t)
	w.apply(created)
	before := ranges(t, w.namespace, exampleClaims)
	unchanged := func(step string) {
		t.Helper()
		w.planned(false)
		if diff := cmp.Diff(before, ranges(t, w.namespace, len(before))); diff != "" {
			t.Errorf("%s changed ranges (-before +after):\n%s", step, diff)
		}
	}

	w.variables["labels"] = map[string]string{"team": "frontend-team", "stage": "test"}
	w.planned(true)
	w.apply(counts{changed: exampleClaims})
	unchanged("labels")
	if got := w.stored(loadbalancer).GetLabels()["stage"]; got != "test" {
		t.Errorf("label stage is %q", got)
	}

	w.variables["cidr"] = "10.60.0.0/25"
	w.apply(counts{changed: 1})
	unchanged("growth of a pool")

	w.variables["machines"] = 4
	w.apply(counts{added: 2})
	more := ranges(t, w.namespace, exampleClaims+2)
	w.variables["machines"] = 3
	w.apply(counts{destroyed: 2})
	unchanged("a machine more and less")
	for name := range before {
		if more[name] != before[name] {
			t.Errorf("a machine more changed %s from%s to%s", name, before[name], more[name])
		}
	}

	// What somebody else changed or deleted is put back.
	changed := w.stored(loadbalancer)
	suite.Change(t, stored, changed, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"team": "nobody", "stage": "test"}) })
	w.planned(true)
	w.apply(counts{changed: 1})
	unchanged("drift")
	suite.Delete(t, stored, w.stored(loadbalancer))
	w.planned(true)
	w.apply(counts{added: 1})
	w.planned(false)
	ranges(t, w.namespace, exampleClaims)

	w.must("destroy", "-input=false", "-auto-approve")
	nothingLeft(t, w.namespace)
}

func TestOpenTofu_DeniedChange(t *testing.T) {
	t.Parallel()
	w := newTofu(t)
	w.apply(created)
	before := ranges(t, w.namespace, exampleClaims)

	// The provider keeps a denied change in its state as if it had been made, so its
	// plans are empty until the configuration changes again.
	w.variables["cidr"] = "10.60.0.0/27"
	w.denied("cidr")
	w.planned(false)
	w.variables["cidr"] = "10.60.0.0/26"
	w.apply(counts{changed: 1})

	w.variables["allocations"] = map[string]int{"nodes": 5, "loadbalancer": 9}
	w.denied("count", "cannot be changed")
	w.planned(false)
	if diff := cmp.Diff(before, ranges(t, w.namespace, exampleClaims)); diff != "" {
		t.Errorf("a denied change changed ranges (-before +after):\n%s", diff)
	}

	// Another count is another object.
	w.apply(counts{added: 1, destroyed: 1}, `-replace=kubectl_manifest.allocation["loadbalancer"]`)
	w.planned(false)
	after := ranges(t, w.namespace, exampleClaims)
	expected := maps.Clone(before)
	expected[loadbalancer] = after[loadbalancer]
	if diff := cmp.Diff(expected, after); diff != "" {
		t.Errorf("the replacement changed other claims (-before +after):\n%s", diff)
	}
	if count, _, _ := unstructured.NestedInt64(w.stored(loadbalancer).Object, "spec", "count"); count != 9 {
		t.Errorf("the replacement has count %d", count)
	}

	w.must("destroy", "-input=false", "-auto-approve")
	nothingLeft(t, w.namespace)
}

// stored is an object of the example, by its name in list.
func (w *tofu) stored(name string) *unstructured.Unstructured {
	w.t.Helper()
	objects, err := list(w.t.Context(), w.namespace, all...)
	if err != nil {
		w.t.Fatal(err)
	}
	o, found := objects[name]
	if !found {
		w.t.Fatalf("%s is not stored", name)
	}
	return o
}

// What needs kube-controller-manager: the end of a namespace, and of what its owner
// leaves.
func TestControllers_DeleteWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := newTofu(t)
	w.apply(created)
	ranges(t, w.namespace, exampleClaims)
	suite.Kubectl(t, cluster, "", "delete", "namespace", w.namespace, "--timeout=60s")
	left, err := list(t.Context(), w.namespace, networkPools, ipPools, ipAllocations, ipClaims, ipAddressClaims, metal3Addresses, clusterAPIAddresses)
	if err != nil {
		t.Fatal(err)
	}
	for name := range left {
		t.Errorf("%s outlives its namespace", name)
	}
	// The state still names them; the next destroy finds them gone and deletes what has
	// no namespace.
	w.must("destroy", "-input=false", "-auto-approve")
	nothingLeft(t, w.namespace)
}
