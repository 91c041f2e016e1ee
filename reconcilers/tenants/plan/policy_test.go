package plan_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

func TestPolicyOf(t *testing.T) {
	cloud := plan.Policy{Nodes: true, InitialSize: 8, Increment: 2, MaxNodes: math.MaxInt32, MaxLoadBalancers: math.MaxInt32}
	with := func(change func(*plan.Policy)) plan.Policy {
		p := cloud
		p.IPAM = true
		change(&p)
		return p
	}
	cases := map[string]struct {
		config string
		want   plan.Policy
	}{
		"no network":        {config: `{spec: {provider: aws}}`, want: cloud},
		"cloud":             {config: `{spec: {provider: aws, network: {mode: cloud}}}`, want: cloud},
		"static by default": {config: `{spec: {provider: a, network: {mode: ipam, poolRefs: [{name: a}]}}}`, want: with(func(p *plan.Policy) { p.Pools = []string{"a"} })},
		"static":            {config: `{spec: {provider: a, network: {mode: ipam, loadBalancer: {defaultPoolSize: 4, initialPoolSize: 3}}}}`, want: with(func(p *plan.Policy) { p.InitialSize = 4 })},
		"elastic":           {config: `{spec: {provider: a, network: {mode: ipam, loadBalancer: {allocationMode: elastic}}}}`, want: with(func(p *plan.Policy) { p.Elastic, p.InitialSize = true, 2 })},
		"elastic with sizes and quotas": {
			config: `{spec: {provider: a, network: {mode: ipam, loadBalancer: {allocationMode: elastic, initialPoolSize: 3, growthIncrement: 5}, quotaPerTenant: {maxNodeIPs: 4, maxLoadBalancerIPs: 6}}}}`,
			want: with(func(p *plan.Policy) {
				p.Elastic, p.InitialSize, p.Increment, p.MaxNodes, p.MaxLoadBalancers = true, 3, 5, 4, 6
			}),
		},
		"pools by priority, then in the list's order": {
			config: `{spec: {provider: a, network: {mode: ipam, poolRefs: [{name: c, priority: 10}, {name: a}, {name: d, priority: 10}, {name: b, priority: 0}, {name: z, priority: -1}, {name: a, priority: 3}]}}}`,
			want:   with(func(p *plan.Policy) { p.Pools = []string{"z", "a", "b", "c", "d"} }),
		},
		"first block without ingress": {
			config: `{spec: {provider: a, network: {mode: ipam, loadBalancer: {allocationMode: elastic, ingressDisabled: headroom}}}}`,
			want:   with(func(p *plan.Policy) { p.Elastic, p.InitialSize, p.Headroom = true, 2, true }),
		},
		"first block without ingress, by Butler's CRD": {
			config: `{metadata: {annotations: {butler.butlerlabs.dev/ingress-disabled: headroom}}, spec: {provider: a, network: {mode: ipam, loadBalancer: {allocationMode: elastic}}}}`,
			want:   with(func(p *plan.Policy) { p.Elastic, p.InitialSize, p.Headroom = true, 2, true }),
		},
		"the field before the annotation": {
			config: `{metadata: {annotations: {butler.butlerlabs.dev/ingress-disabled: headroom}}, spec: {provider: a, network: {mode: ipam, loadBalancer: {allocationMode: elastic, ingressDisabled: none}}}}`,
			want:   with(func(p *plan.Policy) { p.Elastic, p.InitialSize = true, 2 }),
		},
		"nodes from elsewhere": {
			config: `{metadata: {annotations: {butler.butlerlabs.dev/node-addresses: external}}, spec: {provider: a, network: {mode: ipam}}}`,
			want:   with(func(p *plan.Policy) { p.Nodes = false }),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plan.PolicyOf(read[v1alpha1.ProviderConfig](t, tc.config))); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInitialName_DiffersBetweenTenants(t *testing.T) {
	long := strings.Repeat("long.", 50)
	all := []plan.Tenant{
		{Namespace: "a-b", Name: "c", UID: "1"}, {Namespace: "a", Name: "b-c", UID: "2"},
		{Namespace: "a", Name: "b-c", UID: "3"}, // created again, the block of the one before is still there
		{Namespace: "a", Name: long + "x", UID: "4"}, {Namespace: "a", Name: long + "y", UID: "5"}, {Namespace: "a", Name: long + "y", UID: "6"},
		{Namespace: "a", Name: "b-c-lb", UID: "7"}, {Namespace: "a", Name: "b-c-lb-1", UID: "8"},
	}
	owner := map[string]plan.Tenant{}
	for _, x := range all {
		taken := func(name string) bool { _, ok := owner[name]; return ok && owner[name] != x }
		names := []string{
			plan.InitialName(x, v1alpha1.TypeLoadBalancer, taken),
			plan.InitialName(x, v1alpha1.TypeNodes, taken),
			plan.GrowthName(x, taken),
		}
		for _, name := range names {
			if other, ok := owner[name]; ok {
				t.Errorf("%+v and %+v both have %s", x, other, name)
			}
			if rules := validation.IsDNS1123Subdomain(name); len(rules) > 0 {
				t.Errorf("%s: %v", name, rules)
			}
			owner[name] = x
		}
	}
	for _, want := range []string{"a-b-c-lb", "a-b-c-nodes", "a-b-c-lb-1"} {
		if owner[want].UID != "1" {
			t.Errorf("the first tenant should have %s, got %v", want, owner)
		}
	}
}

func TestInitialName_IsStable(t *testing.T) {
	free := func(string) bool { return false }
	for range 3 {
		if got := plan.InitialName(tenant, v1alpha1.TypeLoadBalancer, free); got != "team-x-mycluster-lb" {
			t.Errorf("got %s", got)
		}
	}
	if got := plan.GrowthName(tenant, func(name string) bool { return name == "team-x-mycluster-lb-1" || name == "team-x-mycluster-lb-3" }); got != "team-x-mycluster-lb-2" {
		t.Errorf("want the first number that is free, got %s", got)
	}
}
