package novaedge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// One control plane with two managers serves the whole package. Every test has networks of its own, as all pools share one space.
var (
	cluster *sandbox.Sandbox
	admin   client.Client
)

// soon bounds the wait for a state that comes about in milliseconds on an idle machine.
const soon = 20 * time.Second

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
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), butlerv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return 1, err
	}
	cluster, err = sandbox.Start(context.Background(), sandbox.Options{Replicas: 2, Restart: true, ManagerArgs: []string{"--shutdown-delay=0s", "--service-vips"}})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.WithinRights(), cluster.Stop()) }()
	config := cluster.Config()
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // tests that look at warnings use kubectl
	if admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// pool is a ProxyIPPool that assigns automatically; what has no slash or a whole prefix is an address, the rest are networks.
func pool(name string, offers ...string) *v1alpha1.ProxyIPPool {
	p := &v1alpha1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProxyIPPoolSpec{AutoAssign: true}}
	for _, offer := range offers {
		if strings.Contains(offer, "/") {
			p.Spec.CIDRs = append(p.Spec.CIDRs, offer)
		} else {
			p.Spec.Addresses = append(p.Spec.Addresses, offer)
		}
	}
	return p
}

// vip is a ProxyVIP of a pool, or of none where that is "".
func vip(name, pool string, more ...func(*v1alpha1.ProxyVIPSpec)) *v1alpha1.ProxyVIP {
	v := &v1alpha1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProxyVIPSpec{Mode: v1alpha1.ModeBGP, Ports: []int32{80}}}
	if pool != "" {
		v.Spec.PoolRef = &v1alpha1.PoolReference{Name: pool}
	}
	for _, m := range more {
		m(&v.Spec)
	}
	return v
}

func at(address string) func(*v1alpha1.ProxyVIPSpec) {
	return func(s *v1alpha1.ProxyVIPSpec) { s.Address = address }
}

func at6(address string) func(*v1alpha1.ProxyVIPSpec) {
	return func(s *v1alpha1.ProxyVIPSpec) { s.IPv6Address = address }
}

func of(family v1alpha1.AddressFamily) func(*v1alpha1.ProxyVIPSpec) {
	return func(s *v1alpha1.ProxyVIPSpec) { s.AddressFamily = family }
}

// addresses is what a ProxyVIP has in spec: "IPv4 IPv6", without what it has not.
func addresses(v *v1alpha1.ProxyVIP) string {
	return strings.TrimSpace(v.Spec.Address + " " + v.Spec.IPv6Address)
}

// create stores objects for the time of a test.
func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatalf("create %s: %v", o.GetName(), err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), o) })
	}
}

// gets creates a ProxyVIP and fails the test unless the answer has these addresses.
func gets(t *testing.T, v *v1alpha1.ProxyVIP, want string) {
	t.Helper()
	create(t, v)
	if got := addresses(v); got != want {
		t.Errorf("%s got %q, want %q", v.Name, got, want)
	}
}

// refused fails a test unless a create or an update is refused with this code and a text that has every part.
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

// change updates an object as it is stored.
func change[T client.Object](t *testing.T, o T, f func(T)) error {
	t.Helper()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		f(o)
		return admin.Update(t.Context(), o)
	})
}

// becomes waits until a stored object is as it should be; missing says what it lacks, "" for nothing.
func becomes[T client.Object](t *testing.T, o T, missing func(T) string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			last = err.Error()
			return false, nil
		}
		last = missing(o)
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", o.GetName(), err, last)
	}
}

// counts waits for a pool's counters.
func counts(t *testing.T, p *v1alpha1.ProxyIPPool, allocated, available int64) {
	t.Helper()
	becomes(t, p, func(p *v1alpha1.ProxyIPPool) string {
		if p.Status.Allocated == allocated && p.Status.Available == available && len(p.Status.Conditions) > 0 {
			return ""
		}
		return fmt.Sprintf("allocated %d, available %d, want %d and %d", p.Status.Allocated, p.Status.Available, allocated, available)
	})
}

// bound waits until a ProxyVIP may use its addresses, and gives what its condition says.
func bound(t *testing.T, v *v1alpha1.ProxyVIP) string {
	t.Helper()
	becomes(t, v, func(v *v1alpha1.ProxyVIP) string {
		if meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionBound) {
			return ""
		}
		return fmt.Sprintf("not bound: %+v", v.Status.Conditions)
	})
	c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound)
	return c.Reason + ": " + c.Message
}

// unbound waits until a ProxyVIP is not bound for a reason.
func unbound(t *testing.T, v *v1alpha1.ProxyVIP, reason string) {
	t.Helper()
	becomes(t, v, func(v *v1alpha1.ProxyVIP) string {
		if c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound); c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason {
			return ""
		}
		return fmt.Sprintf("conditions %+v, want Bound=False/%s", v.Status.Conditions, reason)
	})
}

// gone deletes an object and waits for its end.
func gone(t *testing.T, o client.Object) {
	t.Helper()
	if err := admin.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	becomesGone(t, admin, o)
}

// becomesGone waits for the end of an object.
func becomesGone(t *testing.T, c client.Reader, o client.Object) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(o), o)), nil
	})
	if err != nil {
		t.Fatalf("%s is still there: %v", o.GetName(), err)
	}
}

func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	create(t, ns)
	return ns.Name
}

func kubectl(t *testing.T, stdin string, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := cluster.Kubectl(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return stdout, stderr
}
