package admission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// grantLife is how long a grant stays open whose object is not seen: the least that the manager takes.
const grantLife = 45 * time.Second

// One control plane with one manager serves the whole package.
var (
	cluster *sandbox.Sandbox
	admin   client.Client
	grants  journal.Store
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return 1, err
	}
	cluster, err = sandbox.Start(context.Background(), sandbox.Options{
		Replicas: 1, ManagerArgs: []string{"--grant-expiry=" + grantLife.String(), "--log-level=debug"},
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.WithinRights(), cluster.Stop()) }()
	config := cluster.Config()
	config.WarningHandler = rest.NoWarnings{} // tests that look at warnings use kubectl
	if admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	if grants, err = journal.NewLeaseStore(cluster.Config(), sandbox.ManagerNamespace, time.Second); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// namespace makes one for a test that runs beside the others.
func namespace(t *testing.T) string {
	t.Helper()
	t.Parallel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	create(t, ns)
	return ns.Name
}

// pool is a NetworkPool named "pool".
func pool(namespace, cidr string, ranges ...string) *v1alpha1.NetworkPool {
	p := &v1alpha1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: namespace},
		Spec:       v1alpha1.NetworkPoolSpec{CIDR: cidr},
	}
	for _, r := range ranges {
		first, last, _ := strings.Cut(r, "-")
		if p.Spec.TenantAllocation == nil {
			p.Spec.TenantAllocation = &v1alpha1.TenantAllocation{}
		}
		p.Spec.TenantAllocation.Ranges = append(p.Spec.TenantAllocation.Ranges, v1alpha1.IPRange{Start: first, End: last})
	}
	return p
}

// claim is an IPAllocation of the pool named "pool". With a name that ends in a dash the API server completes it.
func claim(namespace, name string, count int32) *v1alpha1.IPAllocation {
	a := &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: "pool"},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "web", Namespace: "team-a"},
			Type:             v1alpha1.TypeNodes,
		},
	}
	if count > 0 {
		a.Spec.Count = &count
	}
	if strings.HasSuffix(name, "-") {
		a.Name, a.GenerateName = "", name
	}
	return a
}

// pinned is an IPAllocation that asks for one range, "first-last".
func pinned(namespace, name, addresses string) *v1alpha1.IPAllocation {
	a := claim(namespace, name, 0)
	first, last, _ := strings.Cut(addresses, "-")
	a.Spec.PinnedRange = &v1alpha1.PinnedIPRange{StartAddress: first, EndAddress: last}
	return a
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// addressesOf is the range that an IPAllocation holds, "first-last", or "" for none.
func addressesOf(a *v1alpha1.IPAllocation) string {
	if a.Spec.PinnedRange == nil {
		return ""
	}
	return a.Spec.PinnedRange.StartAddress + "-" + a.Spec.PinnedRange.EndAddress
}

// refused fails a test unless the error is a refusal with this code whose text has every part.
func refused(t *testing.T, err error, code int32, parts ...string) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code {
		t.Fatalf("want a refusal with code %d, got: %v", code, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("refusal does not say %q: %v", part, err)
		}
	}
}

// canGive waits until one claim could have count addresses of a pool in one piece. Nobody then holds them, no open grant either.
func canGive(t *testing.T, within time.Duration, namespace string, count int32) {
	t.Helper()
	eventually(t, within, func(ctx context.Context) error {
		return admin.Create(ctx, claim(namespace, "probe-", count), client.DryRunAll)
	})
}

// openGrants is the journal's lines for claims of a namespace.
func openGrants(t *testing.T, namespace string) []journal.Line {
	t.Helper()
	v, err := grants.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(v.Lines, func(l journal.Line) bool { return l.Namespace != namespace })
}

// eventually waits for a state and fails with what was last missing of it.
func eventually(t *testing.T, within time.Duration, state func(context.Context) error) {
	t.Helper()
	var missing error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		missing = state(ctx)
		return missing == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, missing)
	}
}

// byMany calls do for 0 to n-1 from a number of goroutines and returns the errors, by number.
func byMany(clients, n int, do func(i int) error) []error {
	errs := make([]error, n)
	next := make(chan int)
	var workers sync.WaitGroup
	for range clients {
		workers.Go(func() {
			for i := range next {
				errs[i] = do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return errs
}

func kubectl(t *testing.T, stdin string, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := cluster.Kubectl(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return stdout, stderr
}
