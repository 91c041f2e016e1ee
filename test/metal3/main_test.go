package metal3

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// One control plane with two managers serves the whole package. Every test has a namespace and a routing domain of its own.
var (
	cluster *sandbox.Sandbox
	admin   client.WithWatch
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
	err = errors.Join(clientgoscheme.AddToScheme(scheme), butlerv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), ipamv1.AddToScheme(scheme), novaedgev1.AddToScheme(scheme), clusterv1.AddToScheme(scheme))
	if err != nil {
		return 1, err
	}
	ctx := context.Background()
	cluster, err = sandbox.Start(ctx, sandbox.Options{Restart: true, ClusterAPI: true, ManagerArgs: []string{"--shutdown-delay=0s"}})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.WithinRights(), cluster.Stop()) }()
	config := cluster.Config()
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // tests that look at warnings use kubectl
	if admin, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	for range 2 {
		if _, err := cluster.AddManager(ctx); err != nil {
			return 1, err
		}
	}
	if err := storeEarlier(ctx); err != nil {
		return 1, err
	}
	if err := cluster.InstallWebhooks(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// namespace is one of its own, by the name of which its pools have a routing domain of their own.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// ipPool is one in the routing domain of its namespace.
func ipPool(ns, name string, spec v1alpha1.IPPoolSpec) *v1alpha1.IPPool {
	if spec.NamePrefix == "" {
		spec.NamePrefix = name
	}
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Labels: map[string]string{butlerv1.LabelRoutingDomain: ns}}, Spec: spec}
}

// between is an entry of spec.pools.
func between(start, end string) v1alpha1.Pool {
	first, last := v1alpha1.IP(start), v1alpha1.IP(end)
	return v1alpha1.Pool{Start: &first, End: &last}
}

// claimKind is one of the two kinds of claims, seen by what both have.
type claimKind struct {
	name string
	list func() client.ObjectList
	// claim asks an IPPool, with the annotation ipAddress where asked says one.
	claim func(ns, name, pool, asked string) client.Object
	// address is the name of the claim's address object, or why it has none.
	address func(client.Object) (name, failure string)
	// settings is what an address object says.
	settings func(t *testing.T, ns, name string) v1alpha1.IPAddressSpec
	// holds makes an address object, of an IPPool, for a claim.
	holds func(ns, name, pool, claim, address string) client.Object
}

var (
	ipClaims = claimKind{
		name: "IPClaim",
		list: func() client.ObjectList { return &v1alpha1.IPClaimList{} },
		claim: func(ns, name, pool, asked string) client.Object {
			return &v1alpha1.IPClaim{ObjectMeta: asking(ns, name, asked), Spec: v1alpha1.IPClaimSpec{Pool: corev1.ObjectReference{Name: pool}}}
		},
		address: func(o client.Object) (name, failure string) {
			status := o.(*v1alpha1.IPClaim).Status
			if status.Address != nil {
				name = status.Address.Name
			}
			if status.ErrorMessage != nil {
				failure = *status.ErrorMessage
			}
			return name, failure
		},
		settings: func(t *testing.T, ns, name string) v1alpha1.IPAddressSpec {
			return stored(t, &v1alpha1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}).Spec
		},
		holds: func(ns, name, pool, claim, address string) client.Object {
			return &v1alpha1.IPAddress{ObjectMeta: asking(ns, name, ""), Spec: v1alpha1.IPAddressSpec{
				Claim: corev1.ObjectReference{Name: claim}, Pool: corev1.ObjectReference{Name: pool}, Address: v1alpha1.IP(address),
			}}
		},
	}
	ipAddressClaims = claimKind{
		name: "IPAddressClaim",
		list: func() client.ObjectList { return &ipamv1.IPAddressClaimList{} },
		claim: func(ns, name, pool, asked string) client.Object {
			return &ipamv1.IPAddressClaim{ObjectMeta: asking(ns, name, asked), Spec: ipamv1.IPAddressClaimSpec{PoolRef: metal3Pool(pool)}}
		},
		address: func(o client.Object) (name, failure string) {
			status := o.(*ipamv1.IPAddressClaim).Status
			for _, c := range status.Conditions {
				if c.Type == clusterv1.ReadyCondition && c.Status == metav1.ConditionFalse {
					failure = c.Message
				}
			}
			return status.AddressRef.Name, failure
		},
		settings: func(t *testing.T, ns, name string) v1alpha1.IPAddressSpec {
			spec := stored(t, &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}).Spec
			s := v1alpha1.IPAddressSpec{Address: v1alpha1.IP(spec.Address), Prefix: int(*spec.Prefix)}
			if gateway := v1alpha1.IP(spec.Gateway); gateway != "" {
				s.Gateway = &gateway
			}
			return s
		},
		holds: func(ns, name, pool, claim, address string) client.Object {
			prefix := int32(24)
			return &ipamv1.IPAddress{ObjectMeta: asking(ns, name, ""), Spec: ipamv1.IPAddressSpec{
				ClaimRef: ipamv1.IPAddressClaimReference{Name: claim}, PoolRef: metal3Pool(pool), Address: address, Prefix: &prefix,
			}}
		},
	}
	bothKinds = []claimKind{ipClaims, ipAddressClaims}
)

func metal3Pool(name string) ipamv1.IPPoolReference {
	return ipamv1.IPPoolReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPPool", Name: name}
}

func asking(ns, name, address string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: ns, Name: name}
	if address != "" {
		m.Annotations = map[string]string{v1alpha1.AnnotationIPAddress: address}
	}
	return m
}

// answer is the address that a claim has from its creation on, "" for none.
func answer(o client.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationIPAddress] }

// create stores objects.
func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// stored reads an object.
func stored[T client.Object](t *testing.T, o T) T {
	t.Helper()
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// gets creates a claim and fails the test unless the create's own answer has this address, and later an address object that the claim names.
func (k claimKind) gets(t *testing.T, c client.Object, want string) {
	t.Helper()
	create(t, c)
	if got := answer(c); got != want {
		t.Fatalf("%s %s got %q, want %q", k.name, c.GetName(), got, want)
	}
	if got := k.bound(t, c); string(got.Address) != want {
		t.Errorf("%s %s: its address object has %s, want %s", k.name, c.GetName(), got.Address, want)
	}
}

// bound waits until a claim names its address object, and gives what that says.
func (k claimKind) bound(t *testing.T, c client.Object) v1alpha1.IPAddressSpec {
	t.Helper()
	name := ""
	becomes(t, c, func(c client.Object) string {
		var failure string
		if name, failure = k.address(c); name != "" && failure == "" && answer(c) != "" {
			return ""
		}
		return fmt.Sprintf("address %q, failure %q, annotations %v", name, failure, c.GetAnnotations())
	})
	return k.settings(t, c.GetNamespace(), name)
}

// fails waits until a claim says why it has no address.
func (k claimKind) fails(t *testing.T, c client.Object, want string) {
	t.Helper()
	becomes(t, c, func(c client.Object) string {
		name, failure := k.address(c)
		if failure == want && name == "" && answer(c) == "" {
			return ""
		}
		return fmt.Sprintf("address %q, failure %q, want %q; annotations %v", name, failure, want, c.GetAnnotations())
	})
}

// becomes waits until a stored object is as it should be; missing says what it lacks, "" for nothing.
func becomes[T client.Object](t *testing.T, o T, missing func(T) string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
		fresh := o.DeepCopyObject().(T)
		clear(fresh.GetAnnotations())
		if err := admin.Get(ctx, client.ObjectKeyFromObject(o), fresh); err != nil {
			last = err.Error()
			return false, nil
		}
		last = missing(fresh)
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%T %s: %v: %s", o, o.GetName(), err, last)
	}
}

// watched gives the versions of a claim from the one that is stored now.
func (k claimKind) watched(t *testing.T, c client.Object) <-chan watch.Event {
	t.Helper()
	w, err := admin.Watch(t.Context(), k.list(), client.InNamespace(c.GetNamespace()), client.MatchingFields{"metadata.name": c.GetName()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w.ResultChan()
}

// change updates an object as it is stored.
func change[T client.Object](t *testing.T, o T, f func(T)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		f(stored(t, o))
		return admin.Update(t.Context(), o)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// gone deletes an object and waits for its end.
func gone(t *testing.T, o client.Object) {
	t.Helper()
	if err := admin.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	becomesGone(t, o)
}

func becomesGone(t *testing.T, o client.Object) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(o), o)), nil
	})
	if err != nil {
		t.Fatalf("%T %s is still there, with finalizers %v: %v", o, o.GetName(), o.GetFinalizers(), err)
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
