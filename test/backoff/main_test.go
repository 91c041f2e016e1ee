package backoff

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// grantLife is how long a grant stays open whose object is not seen: the least that the
// manager takes.
const grantLife = 45 * time.Second

// One control plane with one manager serves the whole package.
var (
	cluster  *sandbox.Sandbox
	admin    client.WithWatch
	auditLog string // file
)

// policy has the API server record who calls what, without bodies.
const policy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted", "Panic"], "rules": [
  {"level": "None", "verbs": ["watch"]},
  {"level": "Metadata", "users": ["system:serviceaccount:butler-ipam-system:butler-ipam"]}
]}`

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "backoff-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "policy.json"), []byte(policy), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	auditLog = filepath.Join(dir, "audit.log")
	o := sandbox.Options{
		Replicas: 1, ClusterAPI: true, ManagerArgs: []string{"--service-vips", "--grant-expiry=" + grantLife.String()},
		APIServerArgs: []string{"--audit-policy-file=" + filepath.Join(dir, "policy.json"), "--audit-log-path=" + auditLog},
	}
	suite.Main(m, o, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		admin, err = suite.NewClient(s)
		return err
	}, func() error { return os.RemoveAll(dir) })
}

// call is one of the manager to the API server.
type call struct {
	at                              time.Time
	verb, resource, namespace, name string
	code                            int
}

// entry is one of the audit log.
type entry struct {
	Verb      string
	ObjectRef struct{ Resource, Subresource, Namespace, Name string }

	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
}

// calls returns the manager's calls from a time on, but those that concern the journal.
func calls(t *testing.T, from time.Time) (all []call) {
	t.Helper()
	f, err := os.Open(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.ObjectRef.Resource == "" || e.ObjectRef.Resource == "leases" || e.RequestReceivedTimestamp.Before(from) {
			continue
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		all = append(all, call{e.RequestReceivedTimestamp, e.Verb, resource, e.ObjectRef.Namespace, e.ObjectRef.Name, e.ResponseStatus.Code})
	}
}

// within returns the calls that concern objects of a namespace, or cluster-scoped objects
// whose name has it, by what they are.
func within(all []call, ns string, from, to time.Time) (n int, what map[string]int) {
	what = map[string]int{}
	for _, c := range all {
		if !c.at.Before(from) && c.at.Before(to) && (c.namespace == ns || strings.Contains(c.name, ns)) {
			n++
			what[fmt.Sprintf("%s %s %d", c.verb, c.resource, c.code)]++
		}
	}
	return n, what
}

// forbid has a policy refuse operations on objects that have the labels, once probe is
// refused by it.
func forbid(t *testing.T, name string, labels map[string]string, group, resource string, probe func(context.Context) error, operations ...admissionregistrationv1.OperationType) client.Object {
	t.Helper()
	binding := suite.CreateDenyingPolicy(t, admin, name, admissionregistrationv1.MatchResources{
		ObjectSelector: &metav1.LabelSelector{MatchLabels: labels}, ResourceRules: suite.RulesFor(operations, resource, group),
	})
	refused(t, probe)
	return binding
}

// refused waits until a write is.
func refused(t *testing.T, probe func(context.Context) error) {
	t.Helper()
	suite.Eventually(t, time.Minute, func(ctx context.Context) error {
		if err := probe(ctx); err == nil || !strings.Contains(err.Error(), "refused") {
			return fmt.Errorf("it is not refused yet: %v", err)
		}
		return nil
	})
}

// patches tries to write to an object, or to its status.
func patches(o client.Object, status bool) func(context.Context) error {
	return func(ctx context.Context) error {
		o := o.DeepCopyObject().(client.Object)
		if status {
			return admin.Status().Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"x":null}}`)), client.DryRunAll)
		}
		return admin.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"x":"y"}}}`)), client.DryRunAll)
	}
}

func meta(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"refuse": ns}}
}

// many makes as many objects.
func many[T client.Object](n int, one func(name string) T) (all []client.Object) {
	for i := range n {
		all = append(all, one(fmt.Sprintf("a-%02d", i)))
	}
	return all
}

func networkPool(ns, name, cidr string) *v1alpha1.NetworkPool {
	return &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.NetworkPoolSpec{CIDR: cidr, RoutingDomain: ns}}
}

func allocation(ns, pool, name string) *v1alpha1.IPAllocation {
	one := int32(1)
	return &v1alpha1.IPAllocation{ObjectMeta: meta(ns, name), Spec: v1alpha1.IPAllocationSpec{
		PoolRef: v1alpha1.LocalObjectReference{Name: pool}, TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "web", Namespace: "team"},
		Type: v1alpha1.TypeNodes, Count: &one,
	}}
}

func ipPool(ns, name, first, last string) *metal3v1.IPPool {
	start, end := metal3v1.IP(first), metal3v1.IP(last)
	return &metal3v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{v1alpha1.LabelRoutingDomain: ns}},
		Spec:       metal3v1.IPPoolSpec{NamePrefix: name, Prefix: 24, Pools: []metal3v1.Pool{{Start: &start, End: &end}}},
	}
}

func ipClaim(ns, pool, name string) *metal3v1.IPClaim {
	return &metal3v1.IPClaim{ObjectMeta: meta(ns, name), Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: pool}}}
}

func ipAddressClaim(ns, pool, name string) *ipamv1.IPAddressClaim {
	return &ipamv1.IPAddressClaim{ObjectMeta: meta(ns, name), Spec: ipamv1.IPAddressClaimSpec{
		PoolRef: ipamv1.IPPoolReference{APIGroup: metal3v1.GroupVersion.Group, Kind: "IPPool", Name: pool},
	}}
}

func proxyIPPool(name, cidr string) *novaedgev1.ProxyIPPool {
	return &novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelRoutingDomain: name}},
		Spec: novaedgev1.ProxyIPPoolSpec{AutoAssign: true, CIDRs: []string{cidr}}}
}

func proxyVIP(ns, pool, name string) *novaedgev1.ProxyVIP {
	v := &novaedgev1.ProxyVIP{ObjectMeta: meta("", ns+"-"+name), Spec: novaedgev1.ProxyVIPSpec{
		Mode: novaedgev1.ModeBGP, Ports: []int32{80}, PoolRef: &novaedgev1.PoolReference{Name: pool},
	}}
	v.Labels["refuse"] = ns
	return v
}

func service(ns, pool, name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: meta(ns, name), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}
	s.Annotations = map[string]string{novaedgev1.AnnotationVIPMode: "BGP", novaedgev1.AnnotationAddressPool: pool}
	return s
}

// addressProbe tries to make an address object.
func addressProbe(group, ns string) func(context.Context) error {
	return func(ctx context.Context) error {
		prefix := int32(24)
		var o client.Object = &metal3v1.IPAddress{ObjectMeta: meta(ns, "probe"), Spec: metal3v1.IPAddressSpec{
			Claim: corev1.ObjectReference{Name: "probe"}, Pool: corev1.ObjectReference{Name: "pool"}, Address: "10.0.0.201", Prefix: 24,
		}}
		if group == ipamv1.GroupVersion.Group {
			o = &ipamv1.IPAddress{ObjectMeta: meta(ns, "probe"), Spec: ipamv1.IPAddressSpec{
				ClaimRef: ipamv1.IPAddressClaimReference{Name: "probe"}, PoolRef: ipAddressClaim(ns, "pool", "probe").Spec.PoolRef, Address: "10.0.0.201", Prefix: &prefix,
			}}
		}
		return admin.Create(ctx, o, client.DryRunAll)
	}
}

// nameOfAddress is what the status of an IPAddressClaim names.
func nameOfAddress(o client.Object) string { return o.(*ipamv1.IPAddressClaim).Status.AddressRef.Name }
