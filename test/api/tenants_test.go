package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

func TestProviderConfig_Rules(t *testing.T) {
	const (
		poolsRule = `mode ipam needs at least one NetworkPool in poolRefs`
		cloudRule = `spec.network: Forbidden: mode ipam is not for the providers azure, aws and gcp, whose clouds manage the addresses: use mode cloud`
	)
	cases := map[string]struct {
		spec string
		want []string
	}{
		"the least":      {spec: `{provider: harvester}`},
		"IPAM":           {spec: `{provider: proxmox, network: {mode: ipam, poolRefs: [{name: a, priority: -1}, {name: b}]}}`},
		"elastic":        {spec: `{provider: nutanix, network: {mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic, initialPoolSize: 2, growthIncrement: 1}, quotaPerTenant: {maxNodeIPs: 5, maxLoadBalancerIPs: 8}}}`},
		"clouds":         {spec: `{provider: azure, azure: {subscriptionID: a, resourceGroup: b}, network: {mode: cloud}}`},
		"team":           {spec: `{provider: harvester, scope: {type: team, teamRef: {name: backend}}}`},
		"platform":       {spec: `{provider: harvester, scope: {type: platform}, limits: {maxClustersPerTeam: 3, maxNodesPerTeam: 9}}`},
		"fields of more": {spec: `{provider: harvester, credentialsRef: {name: secret}, harvester: {networkName: default/vlan40}}`},

		"no provider":           {spec: `{}`, want: []string{`spec.provider: Required value`}},
		"azure without azure":   {spec: `{provider: azure}`, want: []string{`spec.azure: Required value: provider azure needs spec.azure with subscriptionID and resourceGroup`}},
		"azure, half":           {spec: `{provider: azure, azure: {subscriptionID: a}}`, want: []string{`spec.azure.resourceGroup: Required value`}},
		"aws without aws":       {spec: `{provider: aws}`, want: []string{`spec.aws: Required value: provider aws needs spec.aws with region`}},
		"aws without region":    {spec: `{provider: aws, aws: {}}`, want: []string{`spec.aws.region: Required value`}},
		"aws with empty region": {spec: `{provider: aws, aws: {region: ""}}`, want: []string{`spec.aws.region: Invalid value: "": spec.aws.region in body should be at least 1 chars long`}},
		"gcp without gcp":       {spec: `{provider: gcp}`, want: []string{`spec.gcp: Required value: provider gcp needs spec.gcp with projectID and region`}},
		"gcp, half":             {spec: `{provider: gcp, gcp: {projectID: a}}`, want: []string{`spec.gcp.region: Required value`}},
		"team without teamRef":  {spec: `{provider: harvester, scope: {type: team}}`, want: []string{`spec.scope.teamRef: Required value: scope team needs teamRef, the team that may use the provider`}},
		"IPAM without pools":    {spec: `{provider: harvester, network: {mode: ipam}}`, want: []string{`spec.network.poolRefs: Required value: ` + poolsRule}},
		"IPAM with no pools":    {spec: `{provider: harvester, network: {mode: ipam, poolRefs: []}}`, want: []string{`spec.network.poolRefs: Required value: ` + poolsRule}},
		"IPAM on azure":         {spec: `{provider: azure, azure: {subscriptionID: a, resourceGroup: b}, network: {mode: ipam, poolRefs: [{name: a}]}}`, want: []string{cloudRule}},
		"IPAM on aws":           {spec: `{provider: aws, aws: {region: a}, network: {mode: ipam, poolRefs: [{name: a}]}}`, want: []string{cloudRule}},
		"IPAM on gcp":           {spec: `{provider: gcp, gcp: {projectID: a, region: b}, network: {mode: ipam, poolRefs: [{name: a}]}}`, want: []string{cloudRule}},
		"another mode":          {spec: `{provider: harvester, network: {mode: dhcp}}`, want: []string{`spec.network.mode: Unsupported value: "dhcp": supported values: "ipam", "cloud"`}},
		"sizes below one": {
			spec: `{provider: harvester, network: {loadBalancer: {defaultPoolSize: 0, initialPoolSize: 0, growthIncrement: 0}, quotaPerTenant: {maxNodeIPs: 0, maxLoadBalancerIPs: 0}}, limits: {maxClustersPerTeam: 0, maxNodesPerTeam: 0}}`,
			want: []string{
				`spec.limits.maxClustersPerTeam: Invalid value: 0: spec.limits.maxClustersPerTeam in body should be greater than or equal to 1`,
				`spec.limits.maxNodesPerTeam: Invalid value: 0: spec.limits.maxNodesPerTeam in body should be greater than or equal to 1`,
				`spec.network.loadBalancer.defaultPoolSize: Invalid value: 0: spec.network.loadBalancer.defaultPoolSize in body should be greater than or equal to 1`,
				`spec.network.loadBalancer.growthIncrement: Invalid value: 0: spec.network.loadBalancer.growthIncrement in body should be greater than or equal to 1`,
				`spec.network.loadBalancer.initialPoolSize: Invalid value: 0: spec.network.loadBalancer.initialPoolSize in body should be greater than or equal to 1`,
				`spec.network.quotaPerTenant.maxLoadBalancerIPs: Invalid value: 0: spec.network.quotaPerTenant.maxLoadBalancerIPs in body should be greater than or equal to 1`,
				`spec.network.quotaPerTenant.maxNodeIPs: Invalid value: 0: spec.network.quotaPerTenant.maxNodeIPs in body should be greater than or equal to 1`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := admin.Create(t.Context(), object(t, "ProviderConfig", "spec: "+tc.spec), client.DryRunAll)
			if diff := diffFaults(t, tc.want, err); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTenantCluster_Rules(t *testing.T) {
	cases := map[string]struct {
		spec string
		want []string
	}{
		"nothing":        {spec: `{}`},
		"all of ours":    {spec: `{teamRef: {name: backend}, providerConfigRef: {name: lab}, networking: {lbPoolSize: 4, loadBalancerPool: {start: 10.40.0.1, end: 10.40.0.9}}, addons: {ingress: {enabled: false}}}`},
		"fields of more": {spec: `{kubernetesVersion: v1.36.3, workers: {replicas: 3}}`},

		"no provider named": {spec: `{providerConfigRef: {namespace: butler-system}}`, want: []string{`spec.providerConfigRef.name: Required value`}},
		"size below one":    {spec: `{networking: {lbPoolSize: 0}}`, want: []string{`spec.networking.lbPoolSize: Invalid value: 0: spec.networking.lbPoolSize in body should be greater than or equal to 1`}},
		"half a range":      {spec: `{networking: {loadBalancerPool: {start: 10.40.0.1}}}`, want: []string{`spec.networking.loadBalancerPool.end: Required value`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := admin.Create(t.Context(), object(t, "TenantCluster", "spec: "+tc.spec), client.DryRunAll)
			if diff := diffFaults(t, tc.want, err); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProviderConfig_Defaults(t *testing.T) {
	o := object(t, "ProviderConfig", `spec: {provider: harvester, network: {poolRefs: [{name: a}], loadBalancer: {}}, scope: {}}`)
	if err := admin.Create(t.Context(), o, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	want := content(t, `
provider: harvester
network:
  mode: cloud
  poolRefs: [{name: a, priority: 0}]
  loadBalancer: {allocationMode: static, defaultPoolSize: 8, initialPoolSize: 2, growthIncrement: 2}
scope: {type: platform}`)
	if diff := cmp.Diff(want, o.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

// The platform's own controllers know fields that this API does not. They keep them at
// every depth, whatever is written here.
func TestTenantCluster_KeepsUnknownFields(t *testing.T) {
	const spec = `
kubernetesVersion: v1.36.3
workers: {replicas: 3, machineTemplate: {cpu: 4}}
networking: {lbPoolSize: 4, podCIDR: 10.244.0.0/16, serviceCIDR: 10.96.0.0/12, dns: {domain: cluster.local}}
addons: {ingress: {enabled: false, provider: traefik}, cni: {version: "1.17"}}`
	o := object(t, "TenantCluster", "{}")
	o.Object["spec"] = content(t, spec)
	suite.CreateForTest(t, admin, o)
	theirs := o.DeepCopy()
	theirs.Object["status"] = content(t, `
phase: Ready
tenantNamespace: my-cluster-0a1b2c3d
observedState: {workers: {desired: 3, ready: 3}}
conditions:
- {type: Ready, status: "True", reason: Ready, message: serves, lastTransitionTime: "2026-01-01T00:00:00Z"}`)
	if err := admin.Status().Update(t.Context(), theirs, client.FieldOwner("butler-controller")); err != nil {
		t.Fatal(err)
	}

	ours := &unstructured.Unstructured{}
	ours.SetAPIVersion(apiVersion)
	ours.SetKind("TenantCluster")
	ours.SetNamespace(o.GetNamespace())
	ours.SetName(o.GetName())
	ours.Object["status"] = content(t, `
lbAllocationRef: {name: my-cluster-lb}
conditions:
- {type: NetworkReady, status: "True", reason: Ready, message: loadbalancer 10.40.0.80/29, lastTransitionTime: "2026-01-01T00:00:01Z"}`)
	if err := admin.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(ours), client.FieldOwner("butler-ipam"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}

	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	want := content(t, `
phase: Ready
tenantNamespace: my-cluster-0a1b2c3d
observedState: {workers: {desired: 3, ready: 3}}
lbAllocationRef: {name: my-cluster-lb}
conditions:
- {type: Ready, status: "True", reason: Ready, message: serves, lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: NetworkReady, status: "True", reason: Ready, message: loadbalancer 10.40.0.80/29, lastTransitionTime: "2026-01-01T00:00:01Z"}`)
	if diff := cmp.Diff(want, o.Object["status"]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(content(t, spec), o.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}

	read := &v1alpha1.TenantCluster{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), read); err != nil {
		t.Fatal(err)
	}
	if *read.Spec.Networking.LBPoolSize != 4 || *read.Spec.Addons.Ingress.Enabled || read.Status.LBAllocationRef.Name != "my-cluster-lb" || len(read.Status.Conditions) != 2 {
		t.Errorf("read as %+v", read)
	}
}

// content reads YAML as answers of the API server are read: whole numbers are int64.
func content(t *testing.T, text string) map[string]any {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}
