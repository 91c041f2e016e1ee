package services

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Else one of two Services would take the other's address away.
func TestNoTwoServicesShareAProxyVIP(t *testing.T) {
	long := strings.Repeat("a", 63)
	owner := map[string]types.NamespacedName{}
	for _, s := range []types.NamespacedName{
		{Namespace: "a-b", Name: "c"}, {Namespace: "a", Name: "b-c"}, {Namespace: "a", Name: "b"}, {Namespace: "b", Name: "a"},
		{Namespace: long, Name: long}, {Namespace: long, Name: long[1:]}, {Namespace: long[1:], Name: long},
	} {
		name := vipName(s)
		if other, taken := owner[name]; taken {
			t.Errorf("%s is the ProxyVIP of %s and of %s", name, s, other)
		}
		owner[name] = s
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

// S14, and what a Service may not show.
func TestWhatAServiceShows(t *testing.T) {
	conflict := []metav1.Condition{{Type: v1alpha1.ConditionConflict, Status: metav1.ConditionTrue}}
	for name, tc := range map[string]struct {
		vip  v1alpha1.ProxyVIP
		want string
	}{
		"with a prefix":     {v1alpha1.ProxyVIP{Spec: v1alpha1.ProxyVIPSpec{Address: "10.0.0.1/32"}}, "10.0.0.1"},
		"bare":              {v1alpha1.ProxyVIP{Spec: v1alpha1.ProxyVIPSpec{Address: "10.0.0.1"}}, "10.0.0.1"},
		"IPv6":              {v1alpha1.ProxyVIP{Spec: v1alpha1.ProxyVIPSpec{AddressFamily: v1alpha1.FamilyIPv6, IPv6Address: "2001:db8::1/128"}}, "2001:db8::1"},
		"both, IPv4 first":  {v1alpha1.ProxyVIP{Spec: v1alpha1.ProxyVIPSpec{AddressFamily: v1alpha1.FamilyDual, Address: "10.0.0.1/32", IPv6Address: "2001:db8::1/128"}}, "10.0.0.1 2001:db8::1"},
		"none yet":          {v1alpha1.ProxyVIP{}, ""},
		"one of two":        {v1alpha1.ProxyVIP{Spec: v1alpha1.ProxyVIPSpec{AddressFamily: v1alpha1.FamilyDual, Address: "10.0.0.1/32"}}, ""},
		"nobody gave it":    {v1alpha1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Spec: v1alpha1.ProxyVIPSpec{Address: "10.0.0.1"}}, ""},
		"another's address": {v1alpha1.ProxyVIP{Spec: v1alpha1.ProxyVIPSpec{Address: "10.0.0.1"}, Status: v1alpha1.ProxyVIPStatus{Conditions: conflict}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.vip.Name == "" {
				tc.vip.Annotations = map[string]string{butlerv1.AnnotationGrant: "a token"}
			}
			var ips []string
			for _, i := range ingressOf(&tc.vip) {
				ips = append(ips, i.IP)
			}
			if diff := cmp.Diff(tc.want, strings.Join(ips, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOneOfTwoEqualPortsIsEnough(t *testing.T) {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}, {Port: 53, Protocol: corev1.ProtocolTCP}, {Port: 80}}}}
	s.Annotations = map[string]string{v1alpha1.AnnotationVIPMode: "BGP"}
	spec, err := specOf(s)
	if diff := cmp.Diff([]any{int64(53), int64(80)}, spec["ports"]); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

// It would make an object of which the webhooks have answered for the address, and which
// etcd does not take.
func TestAnAnnotationThatIsTooLargeForAProxyVIPIsRefused(t *testing.T) {
	s := &corev1.Service{}
	s.Annotations = map[string]string{v1alpha1.AnnotationVIPMode: "BGP", v1alpha1.AnnotationBGPConfig: `{"a": "` + strings.Repeat("<", maxJSONBytes) + `"}`}
	_, err := specOf(s)
	var why *denial
	if !errors.As(err, &why) || why.reason != eventInvalidAnnotation || !strings.Contains(why.message, "it has 16393 bytes, and at most 16384 are taken") {
		t.Errorf("the answer is %v", err)
	}
}
