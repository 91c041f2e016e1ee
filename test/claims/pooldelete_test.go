package claims

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// ownedKind is a kind of claim with its pool, for tests that delete pools.
type ownedKind struct {
	suite.Kind
	// resources are the resources of claims and pool as arguments of kubectl; "" for
	// cluster-scoped kinds.
	resources string
}

// claims returns count claims as YAML.
func (k ownedKind) claims(ns string, count int) []string {
	all := make([]string, count)
	for i := range all {
		all[i] = yamlOf(k.Claim(ns, fmt.Sprintf("c%d", i), ""))
	}
	return all
}

// pool returns the pool as YAML.
func (k ownedKind) pool(ns string) string { return yamlOf(k.Pool(ns, "10.0.0.1", "10.0.0.200")) }

// yamlOf returns an object as YAML.
func yamlOf(o client.Object) string {
	gvk, err := apiutil.GVKForObject(o, admin.Scheme())
	if err != nil {
		panic(err) // the scheme contains all kinds of the suite
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	text, err := yaml.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// ownedKinds returns all kinds of claims, and Services, whose addresses are those of
// ProxyVIPs.
func ownedKinds() (all []ownedKind) {
	for _, k := range suite.Kinds {
		resources := map[string]string{"ipallocations": "ipallocations,networkpools", "ipclaims": "ipclaims,ippools", "ipaddressclaims": "ipaddressclaims,ippools"}[k.Resource]
		if k.Name == "IPAddressClaim_of_NetworkPool" {
			resources = "ipaddressclaims,networkpools"
		}
		all = append(all, ownedKind{k, resources})
		if k.Name == "ProxyVIP" {
			k.Name, k.Claim = "Service", func(ns, name, _ string) client.Object {
				return &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{"novaedge.io/vip-mode": "BGP", "novaedge.io/address-pool": ns}},
					Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
				}
			}
			all = append(all, ownedKind{k, ""})
		}
	}
	return all
}

// withLabels returns the YAML of an object with additional labels.
func withLabels(t *testing.T, document string, more map[string]string) string {
	t.Helper()
	o := object(t, document)
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, more)
	o.SetLabels(labels)
	return yamlOf(o)
}

// writeFile writes documents to a file, in the order of the arguments.
func writeFile(t *testing.T, documents ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(name, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// onEveryOwnedKind runs a test for each kind, with a pool and eight claims that own
// addresses of the pool.
func onEveryOwnedKind(t *testing.T, test func(t *testing.T, ns string, k ownedKind, pool string, claims []string)) {
	t.Helper()
	t.Parallel()
	for _, k := range ownedKinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			pool, claims := k.pool(ns), k.claims(ns, 8)
			suite.Kubectl(t, cluster, "", "create", "-f", writeFile(t, append([]string{pool}, claims...)...))
			awaitOwned(t, pool, len(claims))
			test(t, ns, k, pool, claims)
		})
	}
}

// awaitOwned waits until the status of a pool counts at least count owned addresses or
// allocations.
func awaitOwned(t *testing.T, pool string, count int) {
	t.Helper()
	suite.AwaitObject(t, admin, object(t, pool), func(p *unstructured.Unstructured) string {
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

// awaitDeleted waits until the objects are deleted.
func awaitDeleted(t *testing.T, documents ...string) {
	t.Helper()
	for _, d := range documents {
		suite.AwaitGone(t, admin, object(t, d))
	}
}

func TestPoolDeletion_WithItsClaims(t *testing.T) {
	t.Run("pool last", func(t *testing.T) {
		onEveryOwnedKind(t, func(t *testing.T, _ string, _ ownedKind, pool string, claims []string) {
			suite.Kubectl(t, cluster, "", "delete", "-f", writeFile(t, append(claims, pool)...))
			awaitDeleted(t, append(claims, pool)...)
		})
	})
	t.Run("all at the same time", func(t *testing.T) {
		onEveryOwnedKind(t, func(t *testing.T, _ string, _ ownedKind, pool string, claims []string) {
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
			awaitDeleted(t, all...)
		})
	})
	t.Run("kubectl delete --all", func(t *testing.T) {
		onEveryOwnedKind(t, func(t *testing.T, ns string, k ownedKind, pool string, claims []string) {
			if k.resources == "" {
				return // kubectl would delete the objects of all tests
			}
			suite.Kubectl(t, cluster, "", "delete", "-n", ns, k.resources, "--all")
			awaitDeleted(t, append(claims, pool)...)
		})
	})
	t.Run("deletecollection", func(t *testing.T) {
		onEveryOwnedKind(t, func(t *testing.T, ns string, k ownedKind, pool string, claims []string) {
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
			awaitDeleted(t, append(claims, pool)...)
		})
	})
}

// The pool is deleted before its claims, as a user does by mistake.
func TestPoolDeletion_BeforeItsClaims(t *testing.T) {
	onEveryOwnedKind(t, func(t *testing.T, _ string, k ownedKind, pool string, claims []string) {
		_, _, err := cluster.Kubectl(t.Context(), "", "delete", "--wait=false", "-f", writeFile(t, append([]string{pool}, claims...)...))
		if !k.Protected {
			if err != nil {
				t.Fatal(err)
			}
			awaitDeleted(t, append(claims, pool)...)
			return
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("cannot be deleted while %d ", len(claims))) {
			t.Fatalf("want a denial that counts %d owners, got: %v", len(claims), err)
		}
		if p := suite.Read(t, admin, object(t, pool)); p.GetDeletionTimestamp() != nil {
			t.Fatal("the pool is being deleted, want it untouched")
		}
		suite.Kubectl(t, cluster, "", "delete", "-f", writeFile(t, pool)) // allowed at once: the claims have deletionTimestamps
		awaitDeleted(t, append(claims, pool)...)
	})
}

// A pool has its finalizer from its create, not from its observation by the leader: the
// first claim of the pool may be stored earlier.
func TestPoolDeletion_RightAfterTheCreate(t *testing.T) {
	finalizers := map[string]string{
		"NetworkPool": v1alpha1.FinalizerNetworkPool, "ProxyIPPool": novaedgev1.FinalizerProxyIPPool, "IPPool": metal3v1.FinalizerIPPool,
	}
	onEveryKind(t, func(t *testing.T, k suite.Kind, ns string) {
		pool := k.Pool(ns, "10.0.0.1", "10.0.0.3")
		suite.CreateForTest(t, admin, pool)
		gvk, err := admin.GroupVersionKindFor(pool)
		if err != nil {
			t.Fatal(err)
		}
		if want := finalizers[gvk.Kind]; !slices.Contains(pool.GetFinalizers(), want) {
			t.Errorf("the response to the create of a %s has finalizers %q, want %s among them", gvk.Kind, pool.GetFinalizers(), want)
		}
	})
	t.Run("paused", func(t *testing.T) { // no reconciler would remove the finalizer of a paused pool
		pool := &metal3v1.IPPool{ObjectMeta: metav1.ObjectMeta{
			Name: "paused", Namespace: suite.CreateNamespace(t, admin), Annotations: map[string]string{clusterv1.PausedAnnotation: ""},
		}, Spec: metal3v1.IPPoolSpec{NamePrefix: "paused"}}
		suite.CreateForTest(t, admin, pool)
		if got := pool.GetFinalizers(); len(got) > 0 {
			t.Errorf("the response to the create of a paused IPPool has finalizers %q, want none", got)
		}
	})
}

// A claim with the finalizer of another controller delays the deletion of its pool, and
// the pool allocates nothing meanwhile.
func TestPoolDeletion_WaitsForTheLastOwner(t *testing.T) {
	onEveryOwnedKind(t, func(t *testing.T, ns string, k ownedKind, pool string, claims []string) {
		kept := object(t, claims[0])
		if kept.GetKind() == "Service" {
			kept = object(t, fmt.Sprintf(`{apiVersion: novaedge.io/v1alpha1, kind: ProxyVIP, metadata: {name: svc-%s.c0}}`, ns))
		}
		suite.Change(t, admin, kept, func(o *unstructured.Unstructured) { o.SetFinalizers(append(o.GetFinalizers(), "example.com/keep")) })
		suite.Kubectl(t, cluster, "", "delete", "--wait=false", "-f", writeFile(t, append(claims, pool)...))
		stored := suite.Read(t, admin, object(t, pool))
		if stored.GetDeletionTimestamp() == nil {
			t.Fatal("the pool is not being deleted")
		}
		more := k.claims(ns, 9)[8]
		_, warning, err := cluster.Kubectl(t.Context(), "", "create", "-f", writeFile(t, more))
		switch {
		case k.Name == "Service": // stored; its ProxyVIP is denied
		case k.Denied:
			if err == nil || !strings.Contains(err.Error(), "is being deleted and allocates no more addresses") {
				t.Errorf("a claim of a pool that is being deleted: %v", err)
			}
		default: // stored without an address
			if err != nil || !strings.Contains(warning, "is being deleted and allocates no more addresses") {
				t.Errorf("a claim of a pool that is being deleted: %v, %q", err, warning)
			}
			suite.Kubectl(t, cluster, "", "delete", "-f", writeFile(t, more))
		}
		if p := suite.Read(t, admin, object(t, pool)); len(p.GetFinalizers()) == 0 {
			t.Error("the finalizer of the pool was removed before its last owner was deleted")
		}
		owner := "/" + kept.GetName()
		if k.Name == "Service" { // readers of events in namespace default may not know the Service
			owner = "for a Service of another namespace"
		}
		suite.AwaitEvent(t, admin, stored, "WaitingForOwners", owner+", being deleted: remove what keeps it (metadata.finalizers other than Butler IPAM's), and the pool is deleted")
		suite.Change(t, admin, kept, func(o *unstructured.Unstructured) {
			var others []string
			for _, f := range o.GetFinalizers() {
				if f != "example.com/keep" {
					others = append(others, f)
				}
			}
			o.SetFinalizers(others)
		})
		awaitDeleted(t, append(claims, pool)...)
		_, _, _ = cluster.Kubectl(t.Context(), "", "delete", "--ignore-not-found", "-f", writeFile(t, more))
	})
}

func TestPoolDeletion_ByKubectlPrune(t *testing.T) {
	for _, k := range ownedKinds() {
		if k.resources != "ipallocations,networkpools" {
			continue
		}
		t.Run(k.Name+"/by label", func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool, claims := k.pool(ns), k.claims(ns, 8)
			apply := func(documents ...string) {
				suite.Kubectl(t, cluster, "", "apply", "-n", ns, "--prune", "-l", "set="+ns, "--prune-allowlist=butler.butlerlabs.dev/v1alpha1/IPAllocation",
					"--prune-allowlist=butler.butlerlabs.dev/v1alpha1/NetworkPool", "--prune-allowlist=core/v1/ConfigMap", "-f", writeFile(t, documents...))
			}
			rest := fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: rest, labels: {set: %s}}}`, ns, ns)
			var all []string
			for _, d := range append([]string{pool}, claims...) {
				all = append(all, withLabels(t, d, map[string]string{"set": ns}))
			}
			apply(append(all, rest)...)
			awaitOwned(t, pool, len(claims))
			apply(rest)
			awaitDeleted(t, append(claims, pool)...)
		})
	}
	for _, k := range ownedKinds() {
		if !k.Protected || k.resources == "" { // an ApplySet with cluster-scoped objects needs a cluster-scoped parent
			continue
		}
		t.Run(k.Name+"/of an ApplySet", func(t *testing.T) {
			t.Setenv("KUBECTL_APPLYSET", "true")
			for range 4 { // kubectl prunes the kinds of a set in random order
				ns := suite.CreateNamespace(t, admin)
				pool, claims := k.pool(ns), k.claims(ns, 8)
				apply := func(documents ...string) {
					t.Helper()
					suite.Kubectl(t, cluster, "", "apply", "-n", ns, "--prune", "--applyset=configmap/set", "-f", writeFile(t, documents...))
				}
				rest := fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: rest}}`, ns)
				apply(append([]string{rest, pool}, claims...)...)
				awaitOwned(t, pool, len(claims))
				apply(rest)
				awaitDeleted(t, append(claims, pool)...)
			}
		})
	}
}

// A pool whose claims belong to another set, or to none, is protected like a pool without
// a set.
func TestPoolDeletion_OfASetAlone(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	k := ownedKinds()[0]
	set := func(document, name string) string {
		return withLabels(t, document, map[string]string{"kustomize.toolkit.fluxcd.io/name": name, "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
	}
	pool, claims := set(k.pool(ns), "pools"), k.claims(ns, 2)
	suite.Kubectl(t, cluster, "", "create", "-f", writeFile(t, pool, set(claims[0], "teams"), claims[1]))
	awaitOwned(t, pool, 2)
	suite.RequireDenied(t, admin.Delete(t.Context(), object(t, pool)), 403, "cannot be deleted while 2 ipallocations own addresses of the pool")
	for i, name := range []string{"pools", "pools"} {
		suite.Change(t, admin, object(t, claims[i]), func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": name, "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
		})
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Delete(ctx, object(t, pool)) })
	suite.Kubectl(t, cluster, "", "delete", "-f", writeFile(t, claims...))
	awaitDeleted(t, append(claims, pool)...)
}

// If the deletion of a pool with owners is admitted (an IPPool, or a set with its
// claims), an event names the owners.
func TestPoolDeletion_NamesItsOwners(t *testing.T) {
	onEveryOwnedKind(t, func(t *testing.T, _ string, k ownedKind, pool string, claims []string) {
		if object(t, claims[0]).GetKind() == "Service" {
			return // the ProxyVIP of a Service belongs to no set
		}
		set := map[string]string{"kustomize.toolkit.fluxcd.io/name": "set", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
		for _, d := range append([]string{pool}, claims...) {
			suite.Change(t, admin, object(t, d), func(o *unstructured.Unstructured) {
				labels := o.GetLabels()
				if labels == nil {
					labels = map[string]string{}
				}
				maps.Copy(labels, set)
				o.SetLabels(labels)
			})
		}
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Delete(ctx, object(t, pool)) }) // the informers may observe the labels later
		first := k.Resource + "/" + strings.TrimSuffix(object(t, claims[0]).GetName(), "0")
		suite.AwaitEvent(t, admin, suite.Read(t, admin, object(t, pool)), "WaitingForOwners",
			fmt.Sprintf("addresses are owned by %[1]s0, by %[1]s1, by %[1]s2 and by 5 more: delete them, and the pool is deleted", first))
		suite.Kubectl(t, cluster, "", "delete", "-f", writeFile(t, claims...))
		awaitDeleted(t, append(claims, pool)...)
	})
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
			t.Errorf("not deleted: %s", stdout)
		}
	}
}

// The allocations of a TenantCluster are deleted with the TenantCluster: once its
// deletion has begun, the allocations do not deny the deletion of their pool.
func TestPoolDeletion_WithATenantCluster(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	name := ns
	pool := fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: NetworkPool, metadata: {namespace: %s, name: %s}, spec: {cidr: 10.100.0.0/24,
		tenantAllocation: {ranges: [{start: 10.100.0.0, end: 10.100.0.99}]}}}`, cluster.Namespace(), name)
	provider := fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: ProviderConfig, metadata: {namespace: %s, name: %s},
		spec: {provider: harvester, network: {mode: ipam, poolRefs: [{name: %s}]}}}`, cluster.Namespace(), name, name)
	tenant := fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: TenantCluster, metadata: {namespace: %s, name: c}, spec: {providerConfigRef: {name: %s}}}`, ns, name)
	suite.Kubectl(t, cluster, "", "create", "-f", writeFile(t, pool, provider, tenant))
	awaitOwned(t, pool, 2)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} // the node uses an address, so the allocations are not deleted yet
	suite.CreateForTest(t, admin, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.100.0.0"}}
	if err := admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	suite.RequireDenied(t, admin.Delete(t.Context(), object(t, pool)), 403, "cannot be deleted while 2 ipallocations own addresses of the pool")
	suite.Kubectl(t, cluster, "", "delete", "--wait=false", "-f", writeFile(t, tenant, provider, pool))
	var left v1alpha1.IPAllocationList
	if err := admin.List(t.Context(), &left, client.InNamespace(cluster.Namespace()), client.MatchingLabels{v1alpha1.LabelNetworkPool: name}); err != nil || len(left.Items) != 2 ||
		left.Items[0].DeletionTimestamp != nil {
		t.Errorf("want 2 allocations that the node keeps, got %d (%v)", len(left.Items), err)
	}
	suite.Delete(t, admin, node)
	awaitDeleted(t, tenant, pool)
}

// The deletion of a pool in a terminating namespace is never denied.
func TestPoolDeletion_InATerminatingNamespace(t *testing.T) {
	k := ownedKinds()[0]
	ns := suite.CreateNamespace(t, admin)
	pool, claims := k.pool(ns), k.claims(ns, 2)
	suite.Kubectl(t, cluster, "", "create", "-f", writeFile(t, append([]string{pool}, claims...)...))
	awaitOwned(t, pool, 2)
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
