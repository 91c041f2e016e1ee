package tenants

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// One management cluster with two managers serves the whole package. Every test has
// networks of its own, as all pools share one space.
var (
	cluster *sandbox.Sandbox
	admin   client.Client
)

// Patience of the managers here.
const (
	shrinkAfter = 10 * time.Second
	orphanAfter = 4 * time.Second
)

// maxServices is how many Services of a tenant the managers look at.
const maxServices = 40

func TestMain(m *testing.M) {
	o := sandbox.Options{Tenants: true, ClusterAPI: true, Replicas: 2, Restart: true, ManagerArgs: append(patience(), "--shutdown-delay=0s", "--tenants", fmt.Sprintf("--tenants-max-services=%d", maxServices))}
	suite.Main(m, o, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		admin, err = suite.NewClient(s)
		return err
	}, stopPlane)
}

// read is an object from the YAML of its content.
func read[T any](t *testing.T, text string) *T {
	t.Helper()
	into := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return into
}

// pool creates a NetworkPool that offers one range of its network.
func pool(t *testing.T, name, cidr, start, end string) *v1alpha1.NetworkPool {
	t.Helper()
	p := read[v1alpha1.NetworkPool](t, fmt.Sprintf(`{metadata: {namespace: %s, name: %s}, spec: {cidr: %s, tenantAllocation: {ranges: [{start: %s, end: %s}]}}}`,
		cluster.Namespace(), name, cidr, start, end))
	suite.CreateForTest(t, admin, p)
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
		if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
			return ""
		}
		return "not Ready"
	})
	return p
}

// provider creates a ProviderConfig with its network in YAML. Nodes get their addresses
// elsewhere unless nodes is set.
func provider(t *testing.T, name, network string, nodes bool) *v1alpha1.ProviderConfig {
	t.Helper()
	p := read[v1alpha1.ProviderConfig](t, fmt.Sprintf(`{metadata: {namespace: %s, name: %s}, spec: {provider: harvester, network: %s}}`, cluster.Namespace(), name, network))
	if !nodes {
		p.Annotations = map[string]string{v1alpha1.AnnotationNodeAddresses: v1alpha1.NodeAddressesExternal}
	}
	suite.CreateForTest(t, admin, p)
	return p
}

// tenant is a TenantCluster of a provider, with more of its spec in YAML.
func tenant(t *testing.T, namespace, name, provider, more string) *v1alpha1.TenantCluster {
	t.Helper()
	return read[v1alpha1.TenantCluster](t, fmt.Sprintf(`{metadata: {namespace: %s, name: %s}, spec: {providerConfigRef: {name: %s}%s}}`, namespace, name, provider, more))
}

// always fails the test if something does not hold for a while.
func always(t *testing.T, during time.Duration, holds func(context.Context) error) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); {
		if err := holds(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// networkReady waits for a condition NetworkReady with a status and a reason, and gives
// its message.
func networkReady(t *testing.T, c *v1alpha1.TenantCluster, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	return conditionIs(t, c, v1alpha1.ConditionNetworkReady, status, reason)
}

func conditionIs(t *testing.T, c *v1alpha1.TenantCluster, kind string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	suite.AwaitObject(t, admin, c, func(c *v1alpha1.TenantCluster) string {
		if is := meta.FindStatusCondition(c.Status.Conditions, kind); is == nil || is.Status != status || is.Reason != reason {
			return fmt.Sprintf("%s is %+v, want %s/%s", kind, is, status, reason)
		}
		return ""
	})
	return meta.FindStatusCondition(c.Status.Conditions, kind).Message
}

// allocations is what a tenant has: "name range" each, in the order of names.
func allocations(ctx context.Context, c *v1alpha1.TenantCluster) ([]string, error) {
	list := &v1alpha1.IPAllocationList{}
	if err := admin.List(ctx, list, client.InNamespace(cluster.Namespace())); err != nil {
		return nil, err
	}
	var have []string
	for _, a := range list.Items {
		if ref := a.Spec.TenantClusterRef; ref.Namespace == c.Namespace && ref.Name == c.Name {
			text := a.Name
			if r := a.Spec.PinnedRange; r != nil {
				text += " " + r.StartAddress + "-" + r.EndAddress
			}
			have = append(have, text)
		}
	}
	return have, nil
}

// has waits until a tenant has exactly these allocations.
func has(t *testing.T, c *v1alpha1.TenantCluster, want ...string) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return holds(ctx, c, want...) })
}

func holds(ctx context.Context, c *v1alpha1.TenantCluster, want ...string) error {
	have, err := allocations(ctx, c)
	if err == nil && strings.Join(have, "\n") != strings.Join(want, "\n") {
		err = fmt.Errorf("tenant %s has %q, want %q", c.Name, have, want)
	}
	return err
}

// hears waits for an event on an object, with a reason and a text that has this part.
func hears(t *testing.T, o client.Object, reason, part string) {
	t.Helper()
	suite.Eventually(t, 4*suite.Soon, func(ctx context.Context) error { // a manager writes one event at a time
		all := &corev1.EventList{}
		if err := admin.List(ctx, all, client.InNamespace(o.GetNamespace())); err != nil {
			return err
		}
		var heard []string
		for _, e := range all.Items {
			if e.InvolvedObject.UID == o.GetUID() {
				if e.Reason == reason && strings.Contains(e.Message, part) {
					return nil
				}
				heard = append(heard, e.Reason+": "+e.Message)
			}
		}
		return fmt.Errorf("no event %s with %q on %s, but %q", reason, part, o.GetName(), heard)
	})
}

// free waits until a pool has so many addresses left.
func free(t *testing.T, p *v1alpha1.NetworkPool, want int64) {
	t.Helper()
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
		if p.Status.AvailableIPs == want {
			return ""
		}
		return fmt.Sprintf("%d addresses free, want %d", p.Status.AvailableIPs, want)
	})
}
