package tenants_test

import (
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

var (
	noon   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ipv4   = tenants.MetalLB{Families: []corev1.IPFamily{corev1.IPv4Protocol}}
	tenant = tenants.Tenant{Namespace: "team-x", Name: "mycluster", UID: "a1b2", Ingress: true}
)

func ago(minutes float64) time.Time { return noon.Add(-time.Duration(minutes * float64(time.Minute))) }

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	into := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return into
}

// policy is that of a ProviderConfig with its network in YAML.
func policy(t *testing.T, network string) tenants.Policy {
	t.Helper()
	return tenants.PolicyOf(read[v1alpha1.ProviderConfig](t, `{spec: {provider: harvester, network: `+network+`}}`))
}

func rangeOf(t *testing.T, text string) allocator.Range {
	t.Helper()
	r, err := allocator.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// allocation is an IPAllocation of the tenant, as its answer left it.
func allocation(t *testing.T, name, role, addresses string) v1alpha1.IPAllocation {
	t.Helper()
	a := tenants.New(tenant, v1alpha1.TypeLoadBalancer, role, "butler-system", name, "vlan40-pool", 0)
	a.Annotations[v1alpha1.AnnotationOrigin] = v1alpha1.OriginAuto
	if addresses == "" {
		a.Status.Phase = v1alpha1.PhasePending
		return *a
	}
	r := rangeOf(t, addresses)
	count := int32(r.Size())
	a.Spec.Count = &count
	a.Spec.PinnedRange = &v1alpha1.PinnedIPRange{StartAddress: r.First.String(), EndAddress: r.Last.String()}
	a.Status.Phase = v1alpha1.PhaseAllocated
	a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	return *a
}

// restored is an allocation that came back from a backup: with a range, as if its author had asked for that.
func restored(a *v1alpha1.IPAllocation) {
	a.Annotations[v1alpha1.AnnotationOrigin] = v1alpha1.OriginPinned
}

// pinned is an allocation of which that is so.
func pinned(a *v1alpha1.IPAllocation) {
	restored(a)
	delete(a.Labels, v1alpha1.LabelManagedBy)
}

// kept is an allocation that is never to be deleted.
func kept(a *v1alpha1.IPAllocation) { a.Annotations[v1alpha1.AnnotationKeep] = "true" }

// waiting is Services, so many, that have waited for so long.
func waiting(n int, since time.Time) (services []tenants.Service) {
	for i := range n {
		services = append(services, tenants.ServiceOf(balancer(strconv.Itoa(i)), ipv4, since, false))
	}
	return services
}

// served is Services that have these addresses.
func served(addresses ...string) (services []tenants.Service) {
	for i, a := range addresses {
		s := balancer("served-" + strconv.Itoa(i))
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: a}}
		services = append(services, tenants.ServiceOf(s, ipv4, noon, false))
	}
	return services
}

func balancer(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}
