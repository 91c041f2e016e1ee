package plan_test

import (
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

var (
	noon   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ipv4   = plan.MetalLB{Families: []corev1.IPFamily{corev1.IPv4Protocol}}
	tenant = plan.Tenant{Namespace: "team-x", Name: "mycluster", UID: "a1b2", Ingress: true}
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

// policy returns the policy of a ProviderConfig with spec.network in YAML.
func policy(t *testing.T, network string) plan.Policy {
	t.Helper()
	return plan.PolicyOf(read[v1alpha1.ProviderConfig](t, `{spec: {provider: harvester, network: `+network+`}}`))
}

func rangeOf(t *testing.T, text string) allocator.Range {
	t.Helper()
	r, err := allocator.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// allocation returns an allocation of the tenant as admission and reconcilers left it;
// pending if addresses is empty.
func allocation(t *testing.T, name, role, addresses string) v1alpha1.IPAllocation {
	t.Helper()
	a := plan.NewAllocation(tenant, v1alpha1.TypeLoadBalancer, role, "butler-system", name, "vlan40-pool", 0)
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

// restored changes an allocation into one from a backup: the range counts as requested by
// an author.
func restored(a *v1alpha1.IPAllocation) {
	a.Annotations[v1alpha1.AnnotationOrigin] = v1alpha1.OriginPinned
}

// pinned changes an allocation into one whose author requested the range.
func pinned(a *v1alpha1.IPAllocation) {
	restored(a)
	delete(a.Labels, v1alpha1.LabelManagedBy)
}

// kept adds annotation keep.
func kept(a *v1alpha1.IPAllocation) { a.Annotations[v1alpha1.AnnotationKeep] = "true" }

// waiting returns n Services that wait since a time.
func waiting(n int, since time.Time) (services []plan.Service) {
	for i := range n {
		services = append(services, plan.ServiceOf(balancer(strconv.Itoa(i)), ipv4, since, false))
	}
	return services
}

// served returns a Service for each address.
func served(addresses ...string) (services []plan.Service) {
	for i, a := range addresses {
		s := balancer("served-" + strconv.Itoa(i))
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: a}}
		services = append(services, plan.ServiceOf(s, ipv4, noon, false))
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
