package gitops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// soon bounds the wait for a state that comes about in milliseconds on an idle machine.
const soon = 30 * time.Second

var apiVersion = v1alpha1.GroupVersion.String()

// One cluster with two managers serves the whole package; each test has a namespace and a
// routing domain of its own.
var (
	cluster *sandbox.Sandbox
	stored  client.Client
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctrllog.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	if cluster, err = sandbox.Start(context.Background(), sandbox.Options{Replicas: 2, ManagerArgs: []string{"--shutdown-delay=0s"}}); err != nil {
		return 1, err
	}
	scheme := clientgoscheme.Scheme
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return 1, errors.Join(err, cluster.Stop())
	}
	if stored, err = client.New(cluster.Config(), client.Options{Scheme: scheme}); err != nil {
		return 1, errors.Join(err, cluster.Stop())
	}
	code = m.Run()
	if live, err := argoCache(); err == nil {
		live.Invalidate() // and watch no more
	}
	return code, cluster.Stop()
}

// gitops is what an engine does with a repository: all objects that should be in a
// namespace. The objects are the engine's to write to.
type gitops interface {
	// sync applies the objects, and deletes what it has applied earlier and is no longer
	// among them.
	sync(ctx context.Context, objects []*unstructured.Unstructured) error
	// drifted names the objects that are stored otherwise, or not at all, or too many.
	drifted(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error)
}

// onEveryEngine runs a test on each engine, in a namespace of its own.
func onEveryEngine(t *testing.T, test func(t *testing.T, namespace string, e gitops)) {
	t.Helper()
	for name, start := range map[string]func(*testing.T, string) gitops{
		"Flux":                         func(t *testing.T, namespace string) gitops { return newFlux(t, namespace) },
		"Argo CD":                      newArgo(argoOptions{}),
		"Argo CD, server-side apply":   newArgo(argoOptions{serverSideApply: true}),
		"Argo CD, all done by servers": newArgo(argoOptions{serverSideApply: true, serverSideDiff: true}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			test(t, namespace, start(t, namespace))
		})
	}
}

func newNamespace(t *testing.T) string {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "gitops-"}}
	must(t, stored.Create(t.Context(), n))
	return n.Name
}

// repository is files of testdata as its build gives them for a namespace: everything in
// it, pools in a routing domain of its own.
func repository(t *testing.T, namespace string, files ...string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for _, name := range files {
		file, err := os.Open(filepath.Join("testdata", name+".yaml"))
		must(t, err)
		read, err := utils.ReadObjects(file)
		must(t, errors.Join(err, file.Close()))
		objects = append(objects, read...)
	}
	for _, o := range objects {
		o.SetNamespace(namespace)
		if o.GetKind() == "NetworkPool" {
			must(t, unstructured.SetNestedField(o.Object, namespace, "spec", "routingDomain"))
		}
	}
	return objects
}

// versions is the resourceVersion of each pool and allocation of a namespace, by
// Kind/name.
func versions(ctx context.Context, namespace string) (map[string]string, error) {
	all := map[string]string{}
	for _, kind := range []string{"NetworkPool", "IPAllocation"} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(apiVersion)
		list.SetKind(kind + "List")
		if err := stored.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			all[kind+"/"+o.GetName()] = o.GetResourceVersion()
		}
	}
	return all, nil
}

func mustVersions(t *testing.T, namespace string) map[string]string {
	t.Helper()
	all, err := versions(t.Context(), namespace)
	must(t, err)
	return all
}

// settled waits until as many allocations as wanted have ranges of their own and the
// pool's status counts them, which is the last write about them. It returns the ranges by
// name.
func settled(t *testing.T, namespace string, want int) map[string]v1alpha1.PinnedIPRange {
	t.Helper()
	ranges := map[string]v1alpha1.PinnedIPRange{}
	must(t, eventually(t.Context(), func() error {
		clear(ranges)
		var allocations v1alpha1.IPAllocationList
		var pool v1alpha1.NetworkPool
		if err := errors.Join(
			stored.List(t.Context(), &allocations, client.InNamespace(namespace)),
			stored.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "vlan40"}, &pool),
		); err != nil {
			return err
		}
		owned := int64(0)
		for _, a := range allocations.Items {
			if !ready(a.Status.Conditions, a.Generation) {
				return fmt.Errorf("%s is not ready: %+v", a.Name, a.Status.Conditions)
			}
			ranges[a.Name] = *a.Spec.PinnedRange
			owned += a.Status.AllocatedCount
		}
		if len(ranges) != want || pool.Status.AllocationCount != int64(want) || pool.Status.AllocatedIPs != owned || !ready(pool.Status.Conditions, pool.Generation) {
			return fmt.Errorf("want %d allocations, there are %d; the pool counts %d of %d addresses in all, and they hold %d", want, len(ranges), pool.Status.AllocationCount, pool.Status.AllocatedIPs, owned)
		}
		return nil
	}))
	return ranges
}

func ready(conditions []metav1.Condition, generation int64) bool {
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
		}
	}
	return false
}

// eventually waits until a check finds nothing to complain about, and returns its last
// complaint where that never is.
func eventually(ctx context.Context, check func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

func different[T any](want, got T) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
