package plan_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

func TestTrimService_KeepsWhatServiceOfReads(t *testing.T) {
	full := func() *corev1.Service {
		s := balancer("full")
		s.Labels = map[string]string{v1alpha1.LabelPlatformLB: "true"}
		s.Annotations = map[string]string{
			"metallb.universe.tf/loadBalancerIPs": "10.40.0.1,10.40.0.2", "metallb.io/address-pool": "default-pool", "metallb.io/allow-shared-ip": "k",
		}
		s.Spec.LoadBalancerClass, s.Spec.LoadBalancerIP = ptr.To("example.com/class"), "10.40.0.3"
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
		s.Spec.ExternalTrafficPolicy, s.Spec.Selector = corev1.ServiceExternalTrafficPolicyLocal, map[string]string{"app": "full"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.40.0.1"}, {Hostname: "example.com"}}
		return s
	}
	cases := map[string]func(*corev1.Service){
		"served":         func(*corev1.Service) {},
		"waits":          func(s *corev1.Service) { *s = *balancer("waits") },
		"being deleted":  func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: noon} },
		"host name only": func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = s.Status.LoadBalancer.Ingress[1:] },
		"other type":     func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP },
	}
	for name, change := range cases {
		s := full()
		change(s)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: strings.Repeat("x", 1000), Protocol: corev1.ProtocolUDP, Port: 53})
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, "example.com/large", strings.Repeat("x", 1000))
		s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("x", 1000)}}
		trimmed := plan.TrimService(s)
		if want, got := plan.ServiceOf(s, ipv4, noon, true), plan.ServiceOf(trimmed, ipv4, noon, true); !reflect.DeepEqual(want, got) {
			t.Errorf("%s: got\n%+v, want\n%+v", name, got, want)
		}
		if trimmed.Size() > 500 {
			t.Errorf("%s: %d bytes remain: %v", name, trimmed.Size(), trimmed)
		}
	}
}

func TestDecide_PartialViewReleasesNothing(t *testing.T) {
	idle := allocation(t, "team-x-mycluster-lb-1", "growth", "10.40.0.8")
	idle.Annotations[v1alpha1.AnnotationIdleSince] = ago(60).Format(time.RFC3339)
	missingSince := map[string]time.Time{idle.Name: ago(1)}
	v := plan.View{Services: waiting(3, ago(1)), MissingSince: missingSince, Partial: true}
	p := decide(t, elasticOne, []v1alpha1.IPAllocation{idle}, v)
	if p.Need != 2 || len(p.Offered) != 1 || len(p.Release)+len(p.Withdrawn)+len(p.BecameIdle) > 0 || len(p.BecameUsed) != 1 {
		t.Errorf("decision %+v", p)
	}
	v.Services, v.Partial = nil, false
	if p := decide(t, elasticOne, []v1alpha1.IPAllocation{idle}, v); len(p.Release) != 1 {
		t.Errorf("with a complete view: decision %+v", p)
	}
}
