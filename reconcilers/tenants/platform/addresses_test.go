package platform_test

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
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	into := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return into
}

func service(name string, addresses ...string) platform.AddressSource {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ingress", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, a := range addresses {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	return platform.OfService(s)
}

func node(name, address string) platform.AddressSource {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeExternalIP, Address: "10.40.0.99"}, {Type: corev1.NodeInternalIP, Address: address}}
	return platform.OfNode(n)
}

func machine(name, address string) platform.AddressSource {
	m := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"addresses": []any{
		map[string]any{"type": "ExternalIP", "address": "10.40.0.98"}, map[string]any{"type": "InternalIP", "address": address},
	}}}}
	m.SetNamespace("tenant")
	m.SetName(name)
	return platform.OfMachine(m)
}

func TestUsageOf(t *testing.T) {
	const pool = `{spec: {cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}, {cidr: 10.40.0.16/29}], tenantAllocation: {ranges: [{start: 10.40.0.128, end: 10.40.0.255}]}}}`
	type list = []v1alpha1.InfrastructureAllocation
	byService := func(ip, name string) v1alpha1.InfrastructureAllocation {
		return v1alpha1.InfrastructureAllocation{IP: ip, Source: "metallb", ServiceRef: &v1alpha1.ServiceReference{Namespace: "ingress", Name: name}}
	}
	byNode := func(ip, name string) v1alpha1.InfrastructureAllocation {
		return v1alpha1.InfrastructureAllocation{IP: ip, Source: "node", NodeRef: &v1alpha1.NodeReference{Name: name}}
	}
	cases := map[string]struct {
		pool        string
		sources     []platform.AddressSource
		want        list
		allocatable []string
	}{
		"no sources":                    {},
		"Service in a reserved network": {sources: []platform.AddressSource{service("a", "10.40.0.3")}, want: list{byService("10.40.0.3", "a")}},
		"Service elsewhere":             {sources: []platform.AddressSource{service("a", "10.40.0.40"), service("c", "10.99.0.1")}},
		"Service in a tenant range":     {sources: []platform.AddressSource{service("a", "10.40.0.130")}, allocatable: []string{"10.40.0.130"}},
		"several Services, sorted by address": {
			sources: []platform.AddressSource{service("a", "10.40.0.10"), service("b", "10.40.0.9", "10.40.0.17")},
			want:    list{byService("10.40.0.9", "b"), byService("10.40.0.10", "a"), byService("10.40.0.17", "b")},
		},
		"Services that share an address": {sources: []platform.AddressSource{service("b", "10.40.0.3"), service("a", "10.40.0.3")}, want: list{byService("10.40.0.3", "a")}},
		"Node":                           {sources: []platform.AddressSource{node("n", "10.40.0.40")}, want: list{byNode("10.40.0.40", "n")}},
		"Node in a reserved network":     {sources: []platform.AddressSource{node("n", "10.40.0.4")}, want: list{byNode("10.40.0.4", "n")}},
		"Node in a tenant range":         {sources: []platform.AddressSource{node("n", "10.40.0.200")}, allocatable: []string{"10.40.0.200"}},
		"Node of another network":        {sources: []platform.AddressSource{node("n", "10.41.0.4")}},
		"Machine": {
			sources: []platform.AddressSource{machine("m", "10.40.0.41")},
			want:    list{{IP: "10.40.0.41", Source: "machine", MachineRef: &v1alpha1.MachineReference{Namespace: "tenant", Name: "m"}}},
		},
		"Machine in a tenant range": {sources: []platform.AddressSource{machine("m", "10.40.0.201"), node("n", "10.40.0.200"), node("o", "10.40.0.201")}, allocatable: []string{"10.40.0.200", "10.40.0.201"}},
		"address of a Service, a Node and a Machine": {
			sources: []platform.AddressSource{machine("m", "10.40.0.3"), node("n", "10.40.0.3"), service("a", "10.40.0.3")},
			want: list{{IP: "10.40.0.3", Source: "metallb", ServiceRef: &v1alpha1.ServiceReference{Namespace: "ingress", Name: "a"},
				NodeRef: &v1alpha1.NodeReference{Name: "n"}, MachineRef: &v1alpha1.MachineReference{Namespace: "tenant", Name: "m"}}},
		},
		"no reserved network": {pool: `{spec: {cidr: 10.40.0.0/24}}`, sources: []platform.AddressSource{service("a", "10.40.0.3"), node("n", "10.40.0.4")}, allocatable: []string{"10.40.0.3", "10.40.0.4"}},
		"pool being deleted":  {pool: `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}]}}`, sources: []platform.AddressSource{service("a", "10.40.0.3")}},
		"invalid pool":        {pool: `{spec: {cidr: nonsense, reserved: [{cidr: 10.40.0.0/28}]}}`, sources: []platform.AddressSource{service("a", "10.40.0.3")}},
		"IPv6": {
			pool:    `{spec: {cidr: "2001:db8::/64", reserved: [{cidr: "2001:db8::/120"}]}}`,
			sources: []platform.AddressSource{service("a", "2001:db8::10"), service("b", "2001:DB8::9"), node("n", "2001:db8::1:1")},
			want:    list{byService("2001:db8::9", "b"), byService("2001:db8::10", "a")}, allocatable: []string{"2001:db8::1:1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.pool == "" {
				tc.pool = pool
			}
			want := platform.Usage{Allocations: tc.want}
			for _, a := range tc.allocatable {
				want.Allocatable = append(want.Allocatable, netip.MustParseAddr(a))
			}
			for range 2 {
				got := platform.UsageOf(read[v1alpha1.NetworkPool](t, tc.pool), tc.sources)
				if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
					t.Errorf("usage (-want +got):\n%s", diff)
				}
				slices.Reverse(tc.sources) // the order of the sources must not matter
			}
		})
	}
}

func TestAddressSource(t *testing.T) {
	clusterIP := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
	clusterIP.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.40.0.3"}}
	if got := platform.OfService(clusterIP).Addresses; got != nil {
		t.Errorf("a Service of another type has %v", got)
	}
	if got := service("a", "", "no address", "10.40.0.10", "10.40.0.9", "10.40.0.10"); !slices.Equal(got.Addresses, []netip.Addr{netip.MustParseAddr("10.40.0.9"), netip.MustParseAddr("10.40.0.10")}) {
		t.Errorf("addresses %v", got.Addresses)
	}
	if a, b := service("a", "10.40.0.9", "10.40.0.10"), service("a", "10.40.0.10", "10.40.0.9"); !a.Equal(b) {
		t.Error("the order of the addresses makes a difference")
	}
	for _, other := range []platform.AddressSource{service("a"), service("a", "10.40.0.9"), service("b", "10.40.0.10"), node("a", "10.40.0.10")} {
		if other.Equal(service("a", "10.40.0.10")) {
			t.Errorf("%+v equals the first", other)
		}
	}
	if got := platform.OfMachine(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"addresses": "none"}}}); got.Addresses != nil {
		t.Errorf("a Machine without addresses has %v", got.Addresses)
	}
}

func TestInUseByService(t *testing.T) {
	for name, tc := range map[string]struct {
		service string
		want    []string
	}{
		"status":                        {`{spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 10.40.0.3}, {hostname: web.example}]}}}`, []string{"10.40.0.3"}},
		"external addresses":            {`{spec: {type: ClusterIP, externalIPs: [10.40.0.9, 10.40.0.4]}}`, []string{"10.40.0.4", "10.40.0.9"}},
		"both":                          {`{spec: {type: LoadBalancer, externalIPs: [10.40.0.4]}, status: {loadBalancer: {ingress: [{ip: 10.40.0.3}, {ip: "2001:db8::3"}]}}}`, []string{"10.40.0.3", "10.40.0.4", "2001:db8::3"}},
		"requested, not assigned":       {`{spec: {type: LoadBalancer, loadBalancerIP: 10.40.0.3}}`, nil},
		"earlier type":                  {`{spec: {type: NodePort}, status: {loadBalancer: {ingress: [{ip: 10.40.0.3}]}}}`, nil},
		"ExternalName":                  {`{spec: {type: ExternalName, externalIPs: [10.40.0.4]}}`, nil},
		"addresses of a ProxyVIP":       {`{metadata: {annotations: {novaedge.io/vip-mode: BGP}}, spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 10.40.0.3}]}}}`, nil},
		"ProxyVIP and external address": {`{metadata: {annotations: {novaedge.io/vip-mode: BGP}}, spec: {type: LoadBalancer, externalIPs: [10.40.0.4]}, status: {loadBalancer: {ingress: [{ip: 10.40.0.3}]}}}`, []string{"10.40.0.4"}},
	} {
		var got []string
		for _, a := range platform.InUseByService(read[corev1.Service](t, tc.service)).Addresses {
			got = append(got, a.String())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestEntriesFor(t *testing.T) {
	at := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	sources := []platform.AddressSource{
		{Kind: platform.Machine, Namespace: "lab", Name: "m", Addresses: at("10.40.0.9")},
		{Kind: platform.Node, Name: "n", Addresses: at("10.40.0.9", "10.40.0.10")},
	}
	want := []v1alpha1.InfrastructureAllocation{
		{IP: "10.40.0.9", Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "n"}, MachineRef: &v1alpha1.MachineReference{Namespace: "lab", Name: "m"}},
		{IP: "10.40.0.10", Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "n"}},
	}
	got := platform.EntriesFor(at("10.40.0.10", "10.40.0.9", "10.40.0.11"), sources)
	platform.SortEntries(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
