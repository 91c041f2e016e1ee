package everyday

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// owned is pools with claims of one kind: their YAML for a namespace and a block of addresses of its own, 10.block.0.0/16.
type owned struct {
	pool   func(ns string, block int) string
	claims func(ns string, block, count int) []string
	// denied reports whether the deletion of the pool is denied while claims stay.
	denied bool
	// resources are those of claims and pool, as kubectl takes them.
	resources string
}

func networkPool(ns string, block int) string {
	return fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: NetworkPool, metadata: {namespace: %s, name: p}, spec: {cidr: 10.%d.0.0/16}}`, ns, block)
}

func ipPool(ns string, block int) string {
	return fmt.Sprintf(`{apiVersion: ipam.metal3.io/v1alpha1, kind: IPPool, metadata: {namespace: %s, name: p}, spec: {namePrefix: p, prefix: 16, gateway: 10.%d.255.254,
		pools: [{subnet: 10.%d.0.0/20}]}}`, ns, block, block)
}

// proxyIPPool is named after the namespace, as it is in none.
func proxyIPPool(ns string, block int) string {
	return fmt.Sprintf(`{apiVersion: novaedge.io/v1alpha1, kind: ProxyIPPool, metadata: {name: %s}, spec: {autoAssign: true, cidrs: [10.%d.0.0/20]}}`, ns, block)
}

// each gives a text for each number up to count.
func each(count int, text func(int) string) []string {
	all := make([]string, count)
	for i := range all {
		all[i] = text(i)
	}
	return all
}

func ipAddressClaims(group, kind string) func(ns string, block, count int) []string {
	return func(ns string, _, count int) []string {
		return each(count, func(i int) string {
			return fmt.Sprintf(`{apiVersion: ipam.cluster.x-k8s.io/v1beta2, kind: IPAddressClaim, metadata: {namespace: %s, name: c%d},
				spec: {poolRef: {apiGroup: %s, kind: %s, name: p}}}`, ns, i, group, kind)
		})
	}
}

var ownedKinds = map[string]owned{
	"NetworkPool with IPAllocations": {networkPool, func(ns string, _, count int) []string {
		return each(count, func(i int) string {
			return fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: IPAllocation, metadata: {namespace: %s, name: c%d},
				spec: {poolRef: {name: p}, type: nodes, count: 2, tenantClusterRef: {namespace: team, name: none}}}`, ns, i)
		})
	}, true, "ipallocations,networkpools"},
	"NetworkPool with IPAddressClaims": {networkPool, ipAddressClaims("butler.butlerlabs.dev", "NetworkPool"), true, "ipaddressclaims,networkpools"},
	"IPPool with IPAddressClaims":      {ipPool, ipAddressClaims("ipam.metal3.io", "IPPool"), false, "ipaddressclaims,ippools"},
	"IPPool with IPClaims": {ipPool, func(ns string, _, count int) []string {
		return each(count, func(i int) string {
			return fmt.Sprintf(`{apiVersion: ipam.metal3.io/v1alpha1, kind: IPClaim, metadata: {namespace: %s, name: c%d}, spec: {pool: {name: p}}}`, ns, i)
		})
	}, false, "ipclaims,ippools"},
	"ProxyIPPool with ProxyVIPs": {proxyIPPool, func(ns string, _, count int) []string {
		return each(count, func(i int) string {
			return fmt.Sprintf(`{apiVersion: novaedge.io/v1alpha1, kind: ProxyVIP, metadata: {name: %s-%d}, spec: {poolRef: {name: %s}, mode: BGP, ports: [80]}}`, ns, i, ns)
		})
	}, true, ""},
	"ProxyIPPool with Services": {proxyIPPool, func(ns string, _, count int) []string {
		return each(count, func(i int) string {
			return fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: c%d, annotations: {novaedge.io/vip-mode: BGP, novaedge.io/address-pool: %s}},
				spec: {type: LoadBalancer, ports: [{port: 80}]}}`, ns, i, ns)
		})
	}, true, ""},
}

// file writes documents to a file, in this order.
func file(t *testing.T, documents ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(name, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

var block = 100 // the last that a test was given

// onEveryOwnedKind runs a test with a pool and claims that have addresses of it, for each kind of them.
func onEveryOwnedKind(t *testing.T, test func(t *testing.T, ns string, k owned, pool string, claims []string)) {
	t.Helper()
	for name, k := range ownedKinds {
		t.Run(name, func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			block++
			pool, claims := k.pool(ns, block), k.claims(ns, block, 8)
			suite.Kubectl(t, cluster, "", "create", "-f", file(t, append([]string{pool}, claims...)...))
			owns(t, pool, len(claims))
			test(t, ns, k, pool, claims)
		})
	}
}

// owns waits until a pool counts as many owned addresses, or allocations, as there are claims at least.
func owns(t *testing.T, pool string, count int) {
	t.Helper()
	suite.Becomes(t, admin, object(t, pool), func(p *unstructured.Unstructured) string {
		status, _, _ := unstructured.NestedMap(p.Object, "status")
		n, _, _ := unstructured.NestedInt64(status, "allocationCount")
		m, _, _ := unstructured.NestedInt64(status, "allocated")
		indexes, _, _ := unstructured.NestedMap(status, "indexes")
		if max(n, m, int64(len(indexes))) < int64(count) {
			return fmt.Sprintf("status %v, want %d owners", status, count)
		}
		return ""
	})
}

// gone waits until these objects are gone.
func gone(t *testing.T, documents ...string) {
	t.Helper()
	for _, d := range documents {
		suite.Gone(t, admin, object(t, d))
	}
}

func TestPoolDeletion_WithItsClaims(t *testing.T) {
	t.Run("pool last", func(t *testing.T) {
		onEveryOwnedKind(t, func(t *testing.T, _ string, _ owned, pool string, claims []string) {
			suite.Kubectl(t, cluster, "", "delete", "-f", file(t, append(claims, pool)...))
			gone(t, append(claims, pool)...)
		})
	})
	t.Run("all at the same time", func(t *testing.T) {
		onEveryOwnedKind(t, func(t *testing.T, _ string, _ owned, pool string, claims []string) {
			all := append([]string{pool}, claims...)
			errs := make(chan error, len(all))
			for _, d := range all {
				o := object(t, d)
				go func() { errs <- admin.Delete(t.Context(), o) }()
			}
			for range all {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			gone(t, all...)
		})
	})
	t.Run("kubectl delete --all", func(t *testing.T) {
		onEveryOwnedKind(t, func(t *testing.T, ns string, k owned, pool string, claims []string) {
			if k.resources == "" {
				return // of all namespaces
			}
			suite.Kubectl(t, cluster, "", "delete", "-n", ns, k.resources, "--all")
			gone(t, append(claims, pool)...)
		})
	})
	t.Run("deletecollection", func(t *testing.T) {
		onEveryOwnedKind(t, func(t *testing.T, ns string, k owned, pool string, claims []string) {
			if k.resources == "" {
				return
			}
			for _, d := range []string{claims[0], pool} {
				o := &unstructured.Unstructured{}
				o.SetGroupVersionKind(object(t, d).GroupVersionKind())
				if err := admin.DeleteAllOf(t.Context(), o, client.InNamespace(ns)); err != nil {
					t.Error(err)
				}
			}
			gone(t, append(claims, pool)...)
		})
	})
}

// The pool comes first: it is deleted while its claims stay, which a person does by mistake.
func TestPoolDeletion_BeforeItsClaims(t *testing.T) {
	onEveryOwnedKind(t, func(t *testing.T, _ string, k owned, pool string, claims []string) {
		_, _, err := cluster.Kubectl(t.Context(), "", "delete", "--wait=false", "-f", file(t, append([]string{pool}, claims...)...))
		if !k.denied {
			if err != nil {
				t.Fatal(err)
			}
			gone(t, append(claims, pool)...)
			return
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("cannot be deleted while %d ", len(claims))) {
			t.Fatalf("want a denial that counts %d owners, got: %v", len(claims), err)
		}
		if p := suite.Stored(t, admin, object(t, pool)); p.GetDeletionTimestamp() != nil {
			t.Fatal("the pool is being deleted, want it untouched")
		}
		suite.Kubectl(t, cluster, "", "delete", "-f", file(t, pool)) // at once: the claims have their deletionTimestamps
		gone(t, append(claims, pool)...)
	})
}

// A claim that something else keeps keeps its pool, which allocates nothing meanwhile.
func TestPoolDeletion_WaitsForTheLastOwner(t *testing.T) {
	onEveryOwnedKind(t, func(t *testing.T, ns string, k owned, pool string, claims []string) {
		kept := object(t, claims[0])
		if kept.GetKind() == "Service" {
			kept = object(t, fmt.Sprintf(`{apiVersion: novaedge.io/v1alpha1, kind: ProxyVIP, metadata: {name: svc-%s.c0}}`, ns))
		}
		suite.Change(t, admin, kept, func(o *unstructured.Unstructured) { o.SetFinalizers(append(o.GetFinalizers(), "example.com/keep")) })
		suite.Kubectl(t, cluster, "", "delete", "--wait=false", "-f", file(t, append(claims, pool)...))
		owns := suite.Stored(t, admin, object(t, pool))
		if owns.GetDeletionTimestamp() == nil {
			t.Fatal("the pool is not being deleted")
		}
		more := k.claims(ns, block, 9)[8]
		_, warning, err := cluster.Kubectl(t.Context(), "", "create", "-f", file(t, more))
		switch object(t, more).GetKind() {
		case "IPAllocation", "ProxyVIP":
			if err == nil || !strings.Contains(err.Error(), "is being deleted and gives out no more addresses") {
				t.Errorf("a claim of a pool that is being deleted: %v", err)
			}
		case "Service":
		default: // stored without an address
			if err != nil || !strings.Contains(warning, "is being deleted and gives out no more addresses") {
				t.Errorf("a claim of a pool that is being deleted: %v, %q", err, warning)
			}
			suite.Kubectl(t, cluster, "", "delete", "-f", file(t, more))
		}
		if p := suite.Stored(t, admin, object(t, pool)); len(p.GetFinalizers()) == 0 {
			t.Error("the pool has lost its finalizer before its last owner")
		}
		suite.Change(t, admin, kept, func(o *unstructured.Unstructured) {
			var rest []string
			for _, f := range o.GetFinalizers() {
				if f != "example.com/keep" {
					rest = append(rest, f)
				}
			}
			o.SetFinalizers(rest)
		})
		gone(t, append(claims, pool)...)
		_, _, _ = cluster.Kubectl(t.Context(), "", "delete", "--ignore-not-found", "-f", file(t, more))
	})
}

func TestPoolDeletion_ByKubectlPrune(t *testing.T) {
	for name, k := range ownedKinds {
		if k.resources != "ipallocations,networkpools" {
			continue
		}
		t.Run(name+"/by label", func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			block++
			pool, claims := k.pool(ns, block), k.claims(ns, block, 8)
			apply := func(documents ...string) {
				suite.Kubectl(t, cluster, "", "apply", "-n", ns, "--prune", "-l", "set="+ns, "--prune-allowlist=butler.butlerlabs.dev/v1alpha1/IPAllocation",
					"--prune-allowlist=butler.butlerlabs.dev/v1alpha1/NetworkPool", "--prune-allowlist=core/v1/ConfigMap", "-f", file(t, documents...))
			}
			rest := fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: rest, labels: {set: %s}}}`, ns, ns)
			var labelled []string
			for _, d := range append([]string{pool}, claims...) {
				labelled = append(labelled, strings.Replace(d, "metadata: {", "metadata: {labels: {set: "+ns+"}, ", 1))
			}
			apply(append(labelled, rest)...)
			owns(t, pool, len(claims))
			apply(rest)
			gone(t, append(claims, pool)...)
		})
	}
	for name, k := range ownedKinds {
		if !k.denied || k.resources == "" { // a set with cluster-scoped objects needs a parent of a kind of its own
			continue
		}
		t.Run(name+"/of an ApplySet", func(t *testing.T) {
			t.Setenv("KUBECTL_APPLYSET", "true")
			for range 4 { // kubectl prunes the kinds of a set in random order
				ns := suite.Namespace(t, admin)
				block++
				pool, claims := k.pool(ns, block), k.claims(ns, block, 8)
				apply := func(documents ...string) {
					t.Helper()
					suite.Kubectl(t, cluster, "", "apply", "-n", ns, "--prune", "--applyset=configmap/set", "-f", file(t, documents...))
				}
				rest := fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: rest}}`, ns)
				apply(append([]string{rest, pool}, claims...)...)
				owns(t, pool, len(claims))
				apply(rest)
				gone(t, append(claims, pool)...)
			}
		})
	}
}

// A pool whose claims are of another set, or of none, is protected as any other.
func TestPoolDeletion_OfASetAlone(t *testing.T) {
	ns := suite.Namespace(t, admin)
	block++
	k := ownedKinds["NetworkPool with IPAllocations"]
	labels := func(document, name string) string {
		return strings.Replace(document, "metadata: {", "metadata: {labels: {kustomize.toolkit.fluxcd.io/name: "+name+", kustomize.toolkit.fluxcd.io/namespace: flux-system}, ", 1)
	}
	pool, claims := labels(k.pool(ns, block), "pools"), k.claims(ns, block, 2)
	suite.Kubectl(t, cluster, "", "create", "-f", file(t, pool, labels(claims[0], "teams"), claims[1]))
	owns(t, pool, 2)
	suite.Refused(t, admin.Delete(t.Context(), object(t, pool)), 403, "cannot be deleted while 2 ipallocations hold addresses of it")
	for i, name := range []string{"pools", "pools"} {
		suite.Change(t, admin, object(t, claims[i]), func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": name, "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
		})
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Delete(ctx, object(t, pool)) })
	suite.Kubectl(t, cluster, "", "delete", "-f", file(t, claims...))
	gone(t, append(claims, pool)...)
}

func TestPoolDeletion_WithTheSamples(t *testing.T) {
	samples := filepath.Join("..", "..", "config", "samples")
	for range 2 {
		suite.Kubectl(t, cluster, "", "apply", "-k", samples)
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
			stdout, _, err := cluster.Kubectl(ctx, "", "get", "-k", samples, "-o",
				`jsonpath={range .items[*]}{.kind} {.metadata.name} {.spec.pinnedRange.endAddress}{.spec.address}{.status.address.name}{.status.loadBalancer.ingress[0].ip}{"\n"}{end}`)
			for line := range strings.Lines(stdout) {
				if kind, _, _ := strings.Cut(line, " "); !strings.HasSuffix(kind, "Pool") && len(strings.Fields(line)) < 3 {
					return fmt.Errorf("no address: %s", line)
				}
			}
			return err
		})
		suite.Kubectl(t, cluster, "", "delete", "-k", samples)
		stdout, _ := suite.Kubectl(t, cluster, "", "get", "-k", samples, "--ignore-not-found", "-o", "name")
		if stdout != "" {
			t.Errorf("left: %s", stdout)
		}
	}
}

// The allocations of a TenantCluster leave with it: as soon as it is being deleted, they keep no pool from being deleted.
func TestPoolDeletion_WithATenantCluster(t *testing.T) {
	ns := suite.Namespace(t, admin)
	block++
	name := ns
	pool := fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: NetworkPool, metadata: {namespace: %s, name: %s}, spec: {cidr: 10.%d.0.0/24,
		tenantAllocation: {ranges: [{start: 10.%d.0.0, end: 10.%d.0.99}]}}}`, cluster.Namespace(), name, block, block, block)
	provider := fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: ProviderConfig, metadata: {namespace: %s, name: %s},
		spec: {provider: harvester, network: {mode: ipam, poolRefs: [{name: %s}]}}}`, cluster.Namespace(), name, name)
	tenant := fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: TenantCluster, metadata: {namespace: %s, name: c}, spec: {providerConfigRef: {name: %s}}}`, ns, name)
	suite.Kubectl(t, cluster, "", "create", "-f", file(t, pool, provider, tenant))
	owns(t, pool, 2)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} // which uses an address: the allocations stay for a while
	suite.Lend(t, admin, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.%d.0.0", block)}}
	if err := admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	suite.Refused(t, admin.Delete(t.Context(), object(t, pool)), 403, "cannot be deleted while 2 ipallocations hold addresses of it")
	suite.Kubectl(t, cluster, "", "delete", "--wait=false", "-f", file(t, tenant, provider, pool))
	var left v1alpha1.IPAllocationList
	if err := admin.List(t.Context(), &left, client.InNamespace(cluster.Namespace()), client.MatchingLabels{v1alpha1.LabelNetworkPool: name}); err != nil || len(left.Items) != 2 ||
		left.Items[0].DeletionTimestamp != nil {
		t.Errorf("want 2 allocations that the node keeps, got %d (%v)", len(left.Items), err)
	}
	suite.Delete(t, admin, node)
	gone(t, tenant, pool)
}

// A pool that goes with its namespace is not denied, whatever stays there.
func TestPoolDeletion_InATerminatingNamespace(t *testing.T) {
	k := ownedKinds["NetworkPool with IPAllocations"]
	ns := suite.Namespace(t, admin)
	block++
	pool, claims := k.pool(ns, block), k.claims(ns, block, 2)
	suite.Kubectl(t, cluster, "", "create", "-f", file(t, append([]string{pool}, claims...)...))
	owns(t, pool, 2)
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	namespace.Name = ns
	if err := admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), object(t, pool)); err != nil {
		t.Error(err)
	}
}
