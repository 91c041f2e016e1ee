package tenants

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func TestChangesOnlyMessage(t *testing.T) {
	tenant := func(version, reason, message string, changes ...func(*v1alpha1.TenantCluster)) *v1alpha1.TenantCluster {
		c := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version, Generation: 1}}
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
		for _, change := range changes {
			change(c)
		}
		return c
	}
	before := tenant("1", "NetworkNotReady", "read tcp 10.0.0.1:41234->10.0.0.2:443")
	for name, tc := range map[string]struct {
		after *v1alpha1.TenantCluster
		want  bool
	}{
		"another port":          {tenant("2", "NetworkNotReady", "read tcp 10.0.0.1:41235->10.0.0.2:443"), true},
		"resync":                {tenant("1", "NetworkNotReady", "read tcp 10.0.0.1:41234->10.0.0.2:443"), false},
		"another reason":        {tenant("2", "PoolExhausted", "no room"), false},
		"condition removed":     {tenant("2", "", "", func(c *v1alpha1.TenantCluster) { c.Status.Conditions = nil }), false},
		"message and spec":      {tenant("2", "NetworkNotReady", "b", func(c *v1alpha1.TenantCluster) { c.Generation = 2 }), false},
		"message and namespace": {tenant("2", "NetworkNotReady", "b", func(c *v1alpha1.TenantCluster) { c.Status.TenantNamespace = "a" }), false},
	} {
		if got := changesOnlyMessage(before, tc.after); got != tc.want {
			t.Errorf("%s: want %t, got %t", name, tc.want, got)
		}
	}
}

func TestChangesPolicy(t *testing.T) {
	provider := func(changes ...func(*v1alpha1.ProviderConfig)) *v1alpha1.ProviderConfig {
		p := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", Generation: 1}}
		for _, change := range changes {
			change(p)
		}
		return p
	}
	annotated := func(name, value string) *v1alpha1.ProviderConfig {
		return provider(func(p *v1alpha1.ProviderConfig) { p.Annotations = map[string]string{name: value} })
	}
	for name, tc := range map[string]struct {
		after *v1alpha1.ProviderConfig
		want  bool
	}{
		"nothing":                 {provider(), false},
		"status":                  {provider(func(p *v1alpha1.ProviderConfig) { p.Status.Capacity = &v1alpha1.ProviderCapacity{} }), false},
		"another annotation":      {annotated("a", "b"), false},
		"spec":                    {provider(func(p *v1alpha1.ProviderConfig) { p.Generation = 2 }), true},
		"another object":          {provider(func(p *v1alpha1.ProviderConfig) { p.UID = "2" }), true},
		"nodes from elsewhere":    {annotated(v1alpha1.AnnotationNodeAddresses, v1alpha1.NodeAddressesExternal), true},
		"tenants without ingress": {annotated(v1alpha1.AnnotationIngressDisabled, string(v1alpha1.IngressDisabledHeadroom)), true},
	} {
		if got := changesPolicy(provider(), tc.after); got != tc.want {
			t.Errorf("%s: want %t, got %t", name, tc.want, got)
		}
	}
}
