package inventory

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// NewTenant selects the ProviderConfig named by the TenantCluster, or the only
// ProviderConfig. Otherwise the quota is not known.
func TestNewTenant_Provider(t *testing.T) {
	provider := func(namespace, name string, quota int32) *butlerv1.ProviderConfig {
		return &butlerv1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: butlerv1.ProviderConfigSpec{
			Network: &butlerv1.ProviderNetwork{QuotaPerTenant: &butlerv1.TenantQuota{MaxLoadBalancerIPs: &quota}},
		}}
	}
	all := []*butlerv1.ProviderConfig{provider("a", "lab", 1), provider("a", "prod", 2), provider("b", "prod", 3)}
	for name, test := range map[string]struct {
		ref       *butlerv1.ProviderReference
		providers []*butlerv1.ProviderConfig
		quota     int32
		notRead   string
	}{
		"named":                      {&butlerv1.ProviderReference{Namespace: "b", Name: "prod"}, all, 3, ""},
		"named_without_namespace":    {&butlerv1.ProviderReference{Name: "lab"}, all, 1, ""},
		"named_in_two_namespaces":    {&butlerv1.ProviderReference{Name: "prod"}, all, 0, "several namespaces have a ProviderConfig prod"},
		"named_and_missing":          {&butlerv1.ProviderReference{Namespace: "b", Name: "lab"}, all, 0, "there is no ProviderConfig lab"},
		"not_named_and_only_one":     {nil, all[:1], 1, ""},
		"not_named_and_several":      {nil, all, 0, "names none of the ProviderConfigs"},
		"not_named_and_none_is_read": {nil, nil, 0, "there is no ProviderConfig among"},
	} {
		got := NewTenant(&butlerv1.TenantCluster{Spec: butlerv1.TenantClusterSpec{ProviderConfigRef: test.ref}}, test.providers)
		if q := got.Quota(PurposeLoadBalancer); q != test.quota || got.Quota(PurposeNodes) != 0 || got.Quota(PurposeMachine) != 0 {
			t.Errorf("%s: quota %d, want %d", name, q, test.quota)
		}
		if notRead := strings.Join(got.NotRead, ""); (notRead == "") != (test.notRead == "") || !strings.Contains(notRead, test.notRead) {
			t.Errorf("%s: not read: %q, want %q", name, notRead, test.notRead)
		}
	}
}

// LoadBalancers reports a range as ready if its claim is Ready and the TenantCluster of
// the claim is not reported as missing.
func TestLoadBalancers(t *testing.T) {
	i := New(now, nil)
	i.Add(newPool("10.0.0.0/24"))
	lb := func(name, address string, change ...func(*butlerv1.IPAllocation)) {
		a := newAllocation(name, address, address, butlerv1.TypeLoadBalancer)
		if address == "" {
			a.Spec.PinnedRange = nil
		}
		for _, c := range change {
			c(a)
		}
		a.Spec.TenantClusterRef = butlerv1.NamespacedObjectReference{Namespace: "team", Name: "balanced"}
		i.Add(a)
	}
	ready := func(a *butlerv1.IPAllocation) {
		a.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Allocated"}}
	}
	growth := func(a *butlerv1.IPAllocation) {
		a.Labels = map[string]string{butlerv1.LabelAllocationRole: butlerv1.RoleGrowth}
	}
	lb("initial", "10.0.0.240", ready)
	lb("idle", "10.0.0.241", ready, growth, func(a *butlerv1.IPAllocation) {
		a.Annotations = map[string]string{butlerv1.AnnotationIdleSince: "2026-01-02T03:00:00Z"}
	})
	lb("unready", "10.0.0.242", growth, func(a *butlerv1.IPAllocation) {
		a.Annotations = map[string]string{butlerv1.AnnotationIdleSince: "yesterday"}
	})
	lb("former", "10.0.0.243", ready, func(a *butlerv1.IPAllocation) {
		a.Status.Conditions = append(a.Status.Conditions, metav1.Condition{Type: butlerv1.ConditionTenantClusterMissing, Status: metav1.ConditionTrue, Reason: butlerv1.ReasonTenantGone})
	})
	lb("waiting", "")
	i.Add(newAllocation("nodes", "10.0.0.244", "10.0.0.244", butlerv1.TypeNodes))
	var got []string
	for _, r := range i.LoadBalancers("team/balanced") {
		text := r.Claim.Name + " " + r.Range.String()
		if r.Growth {
			text += " growth"
		}
		if r.Ready {
			text += " ready"
		}
		if !r.IdleSince.IsZero() {
			text += " idle since " + r.IdleSince.Format("15:04")
		}
		got = append(got, text)
	}
	want := "initial 10.0.0.240 ready, idle 10.0.0.241 growth ready idle since 03:00, unready 10.0.0.242 growth, former 10.0.0.243"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}
