package metal3

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// One control plane with two managers serves the whole package. Every test has a
// namespace and a routing domain of its own.
var (
	cluster *sandbox.Sandbox
	admin   client.WithWatch
)

func TestMain(m *testing.M) {
	o := sandbox.Options{
		Restart: true, ClusterAPI: true, ManagerArgs: []string{"--shutdown-delay=0s"},
		APIServerArgs: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"}, // on in OpenShift
	}
	suite.Main(m, o, func(ctx context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		if admin, err = suite.NewClient(s); err != nil {
			return err
		}
		for range 2 {
			if _, err := s.AddManager(ctx); err != nil {
				return err
			}
		}
		if err := storeEarlier(ctx); err != nil {
			return err
		}
		return s.InstallWebhooks(ctx)
	})
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

// stored reads an object.
func stored[T client.Object](t *testing.T, o T) T {
	t.Helper()
	return suite.Read(t, admin, o)
}

// gets creates a claim and fails the test unless the create's own answer has this
// address, and later an address object that the claim names.
func (k claimKind) gets(t *testing.T, c client.Object, want string) {
	t.Helper()
	suite.Create(t, admin, c)
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
	suite.AwaitObject(t, admin, c, func(c client.Object) string {
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
	suite.AwaitObject(t, admin, c, func(c client.Object) string {
		name, failure := k.address(c)
		if failure == want && name == "" && answer(c) == "" {
			return ""
		}
		return fmt.Sprintf("address %q, failure %q, want %q; annotations %v", name, failure, want, c.GetAnnotations())
	})
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

// told waits for an event about an object that says all this.
func told(t *testing.T, o client.Object, reason string, parts ...string) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		all := &corev1.EventList{}
		if err := admin.List(ctx, all, client.InNamespace(o.GetNamespace())); err != nil {
			return err
		}
		var said []string
		for _, e := range all.Items {
			lacks := func(part string) bool { return !strings.Contains(e.Message, part) }
			if e.InvolvedObject.UID == o.GetUID() && e.Reason == reason && !slices.ContainsFunc(parts, lacks) {
				return nil
			}
			said = append(said, e.InvolvedObject.Name+": "+e.Reason+": "+e.Message)
		}
		return fmt.Errorf("no %s that says %q, but %q", reason, parts, said)
	})
}
