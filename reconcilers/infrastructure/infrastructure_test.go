package infrastructure_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/infrastructure"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	into := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return into
}

func service(name string, addresses ...string) infrastructure.Sighting {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ingress", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, a := range addresses {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	return infrastructure.OfService(s)
}

func node(name, address string) infrastructure.Sighting {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeExternalIP, Address: "10.40.0.99"}, {Type: corev1.NodeInternalIP, Address: address}}
	return infrastructure.OfNode(n)
}

func machine(name, address string) infrastructure.Sighting {
	m := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"addresses": []any{
		map[string]any{"type": "ExternalIP", "address": "10.40.0.98"}, map[string]any{"type": "InternalIP", "address": address},
	}}}}
	m.SetNamespace("tenant")
	m.SetName(name)
	return infrastructure.OfMachine(m)
}

func TestWhatThePlatformUsesOfAPool(t *testing.T) {
	const pool = `{spec: {cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}, {cidr: 10.40.0.16/29}], tenantAllocation: {ranges: [{start: 10.40.0.128, end: 10.40.0.255}]}}}`
	type list = []v1alpha1.InfrastructureAllocation
	byService := func(ip, name string) v1alpha1.InfrastructureAllocation {
		return v1alpha1.InfrastructureAllocation{IP: ip, Source: "metallb", ServiceRef: &v1alpha1.ServiceReference{Namespace: "ingress", Name: name}}
	}
	byNode := func(ip, name string) v1alpha1.InfrastructureAllocation {
		return v1alpha1.InfrastructureAllocation{IP: ip, Source: "node", NodeRef: &v1alpha1.NodeReference{Name: name}}
	}
	cases := map[string]struct {
		pool   string
		seen   []infrastructure.Sighting
		want   list
		inside []string
	}{
		"nothing":                       {},
		"Service in a reserved network": {seen: []infrastructure.Sighting{service("a", "10.40.0.3")}, want: list{byService("10.40.0.3", "a")}},
		"Service elsewhere":             {seen: []infrastructure.Sighting{service("a", "10.40.0.40"), service("b", "10.40.0.130"), service("c", "10.99.0.1")}},
		"several, by address": {
			seen: []infrastructure.Sighting{service("a", "10.40.0.10"), service("b", "10.40.0.9", "10.40.0.17")},
			want: list{byService("10.40.0.9", "b"), byService("10.40.0.10", "a"), byService("10.40.0.17", "b")},
		},
		"Services that share an address": {seen: []infrastructure.Sighting{service("b", "10.40.0.3"), service("a", "10.40.0.3")}, want: list{byService("10.40.0.3", "a")}},
		"Node":                           {seen: []infrastructure.Sighting{node("n", "10.40.0.40")}, want: list{byNode("10.40.0.40", "n")}},
		"Node in a reserved network":     {seen: []infrastructure.Sighting{node("n", "10.40.0.4")}, want: list{byNode("10.40.0.4", "n")}},
		"Node in a tenant range":         {seen: []infrastructure.Sighting{node("n", "10.40.0.200")}, inside: []string{"10.40.0.200"}},
		"Node of another network":        {seen: []infrastructure.Sighting{node("n", "10.41.0.4")}},
		"Machine": {
			seen: []infrastructure.Sighting{machine("m", "10.40.0.41")},
			want: list{{IP: "10.40.0.41", Source: "machine", MachineRef: &v1alpha1.MachineReference{Namespace: "tenant", Name: "m"}}},
		},
		"Machine in a tenant range": {seen: []infrastructure.Sighting{machine("m", "10.40.0.201"), node("n", "10.40.0.200"), node("o", "10.40.0.201")}, inside: []string{"10.40.0.200", "10.40.0.201"}},
		"one address of all three": {
			seen: []infrastructure.Sighting{machine("m", "10.40.0.3"), node("n", "10.40.0.3"), service("a", "10.40.0.3")},
			want: list{{IP: "10.40.0.3", Source: "metallb", ServiceRef: &v1alpha1.ServiceReference{Namespace: "ingress", Name: "a"},
				NodeRef: &v1alpha1.NodeReference{Name: "n"}, MachineRef: &v1alpha1.MachineReference{Namespace: "tenant", Name: "m"}}},
		},
		"no reserved network":    {pool: `{spec: {cidr: 10.40.0.0/24}}`, seen: []infrastructure.Sighting{service("a", "10.40.0.3"), node("n", "10.40.0.4")}, inside: []string{"10.40.0.4"}},
		"a pool that is going":   {pool: `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}]}}`, seen: []infrastructure.Sighting{service("a", "10.40.0.3")}},
		"a pool breaking a rule": {pool: `{spec: {cidr: nonsense, reserved: [{cidr: 10.40.0.0/28}]}}`, seen: []infrastructure.Sighting{service("a", "10.40.0.3")}},
		"IPv6": {
			pool: `{spec: {cidr: "2001:db8::/64", reserved: [{cidr: "2001:db8::/120"}]}}`,
			seen: []infrastructure.Sighting{service("a", "2001:db8::10"), service("b", "2001:DB8::9"), node("n", "2001:db8::1:1")},
			want: list{byService("2001:db8::9", "b"), byService("2001:db8::10", "a")}, inside: []string{"2001:db8::1:1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.pool == "" {
				tc.pool = pool
			}
			want := infrastructure.Use{Allocations: tc.want}
			for _, a := range tc.inside {
				want.Inside = append(want.Inside, netip.MustParseAddr(a))
			}
			for range 2 {
				got := infrastructure.Of(read[v1alpha1.NetworkPool](t, tc.pool), tc.seen)
				if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
					t.Errorf("use (-want +got):\n%s", diff)
				}
				slices.Reverse(tc.seen) // the order of objects means nothing
			}
		})
	}
}

func TestWhatAnObjectShows(t *testing.T) {
	inside := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
	inside.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.40.0.3"}}
	if got := infrastructure.OfService(inside).Addresses; got != nil {
		t.Errorf("a Service of another type shows %v", got)
	}
	if got := service("a", "", "no address", "10.40.0.10", "10.40.0.9", "10.40.0.10"); !slices.Equal(got.Addresses, []netip.Addr{netip.MustParseAddr("10.40.0.9"), netip.MustParseAddr("10.40.0.10")}) {
		t.Errorf("shows %v", got.Addresses)
	}
	if a, b := service("a", "10.40.0.9", "10.40.0.10"), service("a", "10.40.0.10", "10.40.0.9"); !a.Equal(b) {
		t.Error("another order of its addresses is another state")
	}
	for _, other := range []infrastructure.Sighting{service("a"), service("a", "10.40.0.9"), service("b", "10.40.0.10"), node("a", "10.40.0.10")} {
		if other.Equal(service("a", "10.40.0.10")) {
			t.Errorf("%+v is the same", other)
		}
	}
	if got := infrastructure.OfMachine(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"addresses": "none"}}}); got.Addresses != nil {
		t.Errorf("a Machine without addresses shows %v", got.Addresses)
	}
}

func TestWhatIsSaidOfAnAddressThatIsAvoided(t *testing.T) {
	at := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	seen := []infrastructure.Sighting{
		{Source: infrastructure.Machine, Namespace: "lab", Name: "m", Addresses: at("10.40.0.9")},
		{Source: infrastructure.Node, Name: "n", Addresses: at("10.40.0.9", "10.40.0.10")},
	}
	want := []v1alpha1.InfrastructureAllocation{
		{IP: "10.40.0.9", Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "n"}, MachineRef: &v1alpha1.MachineReference{Namespace: "lab", Name: "m"}},
		{IP: "10.40.0.10", Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "n"}},
	}
	got := infrastructure.Entries(at("10.40.0.10", "10.40.0.9", "10.40.0.11"), seen)
	infrastructure.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
