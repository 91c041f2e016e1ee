package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

func TestMissingBlocks(t *testing.T) {
	pools := map[string]*v1alpha1.NetworkPool{
		"a": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/24}}`),
		"b": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.41.0.0/24, tenantAllocation: {defaults: {nodesPerTenant: 3, lbPoolPerTenant: 4}}}}`),
	}
	const (
		elastic  = `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {allocationMode: elastic}}`
		headroom = `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {allocationMode: elastic, ingressDisabled: headroom}}`
		static   = `{mode: ipam, poolRefs: [{name: a}, {name: b}]}`
	)
	candidates := func(a, b int32) []plan.Candidate { return []plan.Candidate{{"a", a}, {"b", b}} }
	nodes := plan.MissingBlock{Kind: v1alpha1.TypeNodes, Candidates: candidates(5, 3)}
	lb := func(n int32) plan.MissingBlock {
		return plan.MissingBlock{Kind: v1alpha1.TypeLoadBalancer, Candidates: candidates(n, n)}
	}
	ofPools := plan.MissingBlock{Kind: v1alpha1.TypeLoadBalancer, Candidates: candidates(8, 4)} // defaults of the pools
	initial := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.0/29")
	failed := func(change ...func(*v1alpha1.IPAllocation)) v1alpha1.IPAllocation {
		f := allocation(t, "team-x-mycluster-lb", "initial", "")
		f.Status.Phase, f.Spec.PoolRef.Name = v1alpha1.PhaseFailed, "a"
		for _, c := range change {
			c(&f)
		}
		return f
	}
	replaced := []plan.MissingBlock{nodes, {Kind: v1alpha1.TypeLoadBalancer, Replaces: "team-x-mycluster-lb", Candidates: []plan.Candidate{{"b", 4}, {"a", 8}}}}
	cases := map[string]struct {
		network string
		tenant  plan.Tenant
		have    []v1alpha1.IPAllocation
		want    []plan.MissingBlock
	}{
		"cloud":                                 {network: `{mode: cloud, poolRefs: [{name: a}]}`, tenant: plan.Tenant{Ingress: true}},
		"static":                                {network: static, tenant: plan.Tenant{Ingress: true}, want: []plan.MissingBlock{nodes, ofPools}},
		"static, no ingress":                    {network: static, want: []plan.MissingBlock{nodes, ofPools}},
		"static, number of the ProviderConfig":  {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {defaultPoolSize: 6}}`, want: []plan.MissingBlock{nodes, lb(6)}},
		"static, default of the CRD":            {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {defaultPoolSize: 8}}`, want: []plan.MissingBlock{nodes, ofPools}},
		"elastic":                               {network: elastic, tenant: plan.Tenant{Ingress: true}, want: []plan.MissingBlock{nodes, lb(2)}},
		"elastic, no ingress":                   {network: elastic, want: []plan.MissingBlock{nodes}},
		"elastic, no ingress, headroom":         {network: headroom, want: []plan.MissingBlock{nodes, lb(2)}},
		"static, no ingress, headroom":          {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {ingressDisabled: headroom}}`, want: []plan.MissingBlock{nodes, ofPools}},
		"elastic, number of the tenant":         {network: elastic, tenant: plan.Tenant{LBPoolSize: 4}, want: []plan.MissingBlock{nodes, lb(4)}},
		"static, number of the tenant":          {network: static, tenant: plan.Tenant{LBPoolSize: 4, Ingress: true}, want: []plan.MissingBlock{nodes, lb(4)}},
		"quotas":                                {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}], quotaPerTenant: {maxNodeIPs: 4, maxLoadBalancerIPs: 6}}`, tenant: plan.Tenant{LBPoolSize: 10}, want: []plan.MissingBlock{{Kind: v1alpha1.TypeNodes, Candidates: candidates(4, 3)}, lb(6)}},
		"priority before order":                 {network: `{mode: ipam, poolRefs: [{name: b, priority: 1}, {name: a}]}`, want: []plan.MissingBlock{nodes, ofPools}},
		"pools that do not exist":               {network: `{mode: ipam, poolRefs: [{name: x}, {name: a}]}`, want: []plan.MissingBlock{{Kind: v1alpha1.TypeNodes, Candidates: []plan.Candidate{{"a", 5}}}, {Kind: v1alpha1.TypeLoadBalancer, Candidates: []plan.Candidate{{"a", 8}}}}},
		"no pool exists":                        {network: `{mode: ipam, poolRefs: [{name: x}]}`, want: []plan.MissingBlock{{Kind: v1alpha1.TypeNodes}, {Kind: v1alpha1.TypeLoadBalancer}}},
		"load balancer block present":           {network: static, have: []v1alpha1.IPAllocation{initial}, want: []plan.MissingBlock{nodes}},
		"failed block":                          {network: static, have: []v1alpha1.IPAllocation{failed()}, want: replaced},
		"failed block, restored":                {network: static, have: []v1alpha1.IPAllocation{failed(restored)}, want: replaced},
		"failed block of another author":        {network: static, have: []v1alpha1.IPAllocation{failed(pinned)}, want: []plan.MissingBlock{nodes}},
		"failed block, kept":                    {network: static, have: []v1alpha1.IPAllocation{failed(kept)}, want: []plan.MissingBlock{nodes}},
		"growth block counts against the quota": {network: `{mode: ipam, poolRefs: [{name: a}], quotaPerTenant: {maxLoadBalancerIPs: 9}}`, have: []v1alpha1.IPAllocation{allocation(t, "team-x-mycluster-lb-1", "growth", "10.40.0.0/29")}, want: []plan.MissingBlock{{Kind: v1alpha1.TypeNodes, Candidates: []plan.Candidate{{"a", 5}}}, {Kind: v1alpha1.TypeLoadBalancer, Candidates: []plan.Candidate{{"a", 1}}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.tenant.Namespace, tc.tenant.Name, tc.tenant.UID = tenant.Namespace, tenant.Name, tenant.UID
			got := plan.MissingBlocks(tc.tenant, policy(t, tc.network), plan.BlocksOf(tc.tenant, tc.have), pools)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("missing blocks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNetworkReadyCondition(t *testing.T) {
	initial := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.80/29")
	notReady := *initial.DeepCopy()
	notReady.Status.Conditions = nil
	failed := allocation(t, "by-hand", "initial", "")
	failed.Status.Phase = v1alpha1.PhaseFailed
	lb := v1alpha1.TypeLoadBalancer
	candidates := []plan.Candidate{{"a", 8}}
	cases := map[string]struct {
		network  string
		have     []v1alpha1.IPAllocation
		missing  []plan.MissingBlock
		refusals map[v1alpha1.IPAllocationType]plan.Refusals
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		"cloud":     {network: `{}`, status: "True", reason: "Ready", message: "the cloud provides the network"},
		"no pool":   {network: `{mode: ipam}`, status: "False", reason: "NetworkNotReady", message: "the ProviderConfig names no NetworkPool: add a NetworkPool to spec.network.poolRefs"},
		"pool gone": {network: `{mode: ipam, poolRefs: [{name: a}]}`, missing: []plan.MissingBlock{{Kind: lb}}, status: "False", reason: "PoolNotFound", message: "no NetworkPool for loadbalancer exists: create a"},
		"exhausted": {network: `{mode: ipam, poolRefs: [{name: a}]}`, missing: []plan.MissingBlock{{Kind: lb, Candidates: candidates}}, refusals: map[v1alpha1.IPAllocationType]plan.Refusals{lb: {{Pool: "a", Message: "a: 8 requested, 3 free"}}}, status: "False", reason: "PoolExhausted", message: "no pool has room for loadbalancer: a: 8 requested, 3 free"},
		"exhausted, every pool": {network: `{mode: ipam, poolRefs: [{name: a}, {name: x}, {name: b}]}`, missing: []plan.MissingBlock{{Kind: lb, Candidates: []plan.Candidate{{"a", 8}, {"b", 8}}}},
			refusals: map[v1alpha1.IPAllocationType]plan.Refusals{lb: {{Pool: "a", Message: "a: 8 requested, 3 free"}, {Pool: "b", Message: "b: 8 requested, 0 free"}}}, status: "False", reason: "PoolExhausted",
			message: "no pool has room for loadbalancer: a: 8 requested, 3 free; b: 8 requested, 0 free; pool x does not exist, or is being deleted"},
		"allocating":           {network: `{mode: ipam, poolRefs: [{name: a}]}`, missing: []plan.MissingBlock{{Kind: lb, Candidates: candidates}}, status: "False", reason: "Reconciling", message: "addresses for loadbalancer are being allocated"},
		"not ready":            {network: `{mode: ipam, poolRefs: [{name: a}]}`, have: []v1alpha1.IPAllocation{notReady}, status: "False", reason: "Reconciling", message: "IPAllocation team-x-mycluster-lb is not ready yet"},
		"failed":               {network: `{mode: ipam, poolRefs: [{name: a}]}`, have: []v1alpha1.IPAllocation{failed}, status: "False", reason: "AllocationFailed", message: "IPAllocation by-hand has failed: see its condition Ready, correct or delete it"},
		"ready":                {network: `{mode: ipam, poolRefs: [{name: a}]}`, have: []v1alpha1.IPAllocation{initial}, status: "True", reason: "Ready", message: "loadbalancer 10.40.0.80/29"},
		"no initial addresses": {network: `{mode: ipam, poolRefs: [{name: a}]}`, status: "True", reason: "Ready", message: "the tenant needs no initial addresses"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := metav1.Condition{Type: "NetworkReady", Status: tc.status, Reason: tc.reason, Message: tc.message}
			got := plan.NetworkReadyCondition(policy(t, tc.network), plan.BlocksOf(tenant, tc.have), tc.missing, tc.refusals)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllocateParts_SplitsOnlyIfNoPoolHasTheBlock(t *testing.T) {
	cases := map[string]struct {
		need, want    int32
		blocks        map[string][]int32 // pool -> free blocks
		wantCount     int32
		wantAllocated []plan.Candidate
	}{
		"block of the first pool":  {need: 3, want: 4, blocks: map[string][]int32{"a": {4}, "b": {8}}, wantCount: 4, wantAllocated: []plan.Candidate{{"a", 4}}},
		"block of the second pool": {need: 3, want: 4, blocks: map[string][]int32{"a": {2, 2}, "b": {8}}, wantCount: 4, wantAllocated: []plan.Candidate{{"b", 4}}},
		"need, not want":           {need: 3, want: 8, blocks: map[string][]int32{"a": {3}}, wantCount: 3, wantAllocated: []plan.Candidate{{"a", 3}}},
		"pieces":                   {need: 5, want: 5, blocks: map[string][]int32{"a": {2, 2, 1}}, wantCount: 5, wantAllocated: []plan.Candidate{{"a", 2}, {"a", 2}, {"a", 1}}},
		"everything that is free":  {need: 5, want: 5, blocks: map[string][]int32{"a": {1}, "b": {1, 1}}, wantCount: 3, wantAllocated: []plan.Candidate{{"a", 1}, {"b", 1}, {"b", 1}}},
		"nothing free":             {need: 1, want: 2, blocks: map[string][]int32{}},
		"nothing needed":           {blocks: map[string][]int32{"a": {4}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var allocated []plan.Candidate
			got, err := plan.AllocateParts([]string{"a", "b"}, tc.need, tc.want, func(c plan.Candidate) (bool, error) {
				free := tc.blocks[c.Pool]
				i := slices.IndexFunc(free, func(n int32) bool { return n >= c.Count })
				if i < 0 {
					return false, nil
				}
				free[i] -= c.Count
				allocated = append(allocated, c)
				return true, nil
			})
			if err != nil || got != tc.wantCount {
				t.Errorf("want %d, got %d, %v", tc.wantCount, got, err)
			}
			if diff := cmp.Diff(tc.wantAllocated, allocated); diff != "" {
				t.Errorf("allocated (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllocateParts_ErrorEndsSearch(t *testing.T) {
	failure, calls := errors.New("no connection"), 0
	got, err := plan.AllocateParts([]string{"a", "b"}, 2, 2, func(plan.Candidate) (bool, error) { calls++; return false, failure })
	if got != 0 || !errors.Is(err, failure) || calls != 1 {
		t.Errorf("got %d, %v after %d calls", got, err, calls)
	}
}

func TestEstimateCapacity(t *testing.T) {
	pool := func(text string) *v1alpha1.NetworkPool { return read[v1alpha1.NetworkPool](t, text) }
	const nine = `{spec: {cidr: 10.40.0.0/24, tenantAllocation: {defaults: {nodesPerTenant: 3, lbPoolPerTenant: 9}}}}`
	pools := map[string]*v1alpha1.NetworkPool{
		"a": pool(nine), "b": pool(nine), "full": pool(nine), "huge": pool(nine),
		"one":     pool(`{spec: {cidr: 10.41.0.0/24, tenantAllocation: {defaults: {nodesPerTenant: 1, lbPoolPerTenant: 1}}}}`),
		"default": pool(`{spec: {cidr: 10.42.0.0/24}}`),
		"window":  pool(nine),
		"red":     pool(`{spec: {cidr: 10.40.0.0/24, routingDomain: red, tenantAllocation: {defaults: {nodesPerTenant: 3, lbPoolPerTenant: 9}}}}`),
		"paused":  pool(`{metadata: {annotations: {cluster.x-k8s.io/paused: ""}}, spec: {cidr: 10.43.0.0/24}}`),
		"pieces":  pool(nine),
	}
	free := map[string][]allocator.Range{}
	for name, texts := range map[string][]string{
		"a": {"10.40.0.0-10.40.0.29"}, "b": {"10.40.0.100-10.40.0.109"}, "huge": {"2001:db8::/64"}, "one": {"10.41.0.4-10.41.0.5"},
		"default": {"10.42.0.8-10.42.0.39"}, "window": {"10.40.0.0-10.40.0.29"}, "red": {"10.40.0.0-10.40.0.29"}, "paused": {"10.43.0.0/24"},
		"pieces": {"10.40.0.0-10.40.0.7", "10.40.0.16-10.40.0.23", "10.40.0.32-10.40.0.39"},
	} {
		for _, text := range texts {
			free[name] = append(free[name], rangeOf(t, text))
		}
	}
	const addPool = "add a NetworkPool to spec.network.poolRefs"
	cases := map[string]struct {
		network             string
		external            bool
		available, tenants  int32
		reason, wantMessage string // "" for PoolAvailable
	}{
		"static":        {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}]}`, available: 40, tenants: 3, wantMessage: "40 IPs, ~3 tenants"},
		"elastic":       {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {allocationMode: elastic}}`, available: 40, tenants: 8, wantMessage: "40 IPs, ~8 tenants"},
		"without nodes": {network: `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic}}`, external: true, available: 30, tenants: 15, wantMessage: "30 IPs, ~15 tenants"},
		"within quotas": {network: `{mode: ipam, poolRefs: [{name: a}], quotaPerTenant: {maxNodeIPs: 1, maxLoadBalancerIPs: 4}}`, available: 30, tenants: 6, wantMessage: "30 IPs, ~6 tenants"},
		"pools with other defaults": { // 34 addresses are enough for 17 tenants of the first pool
			network: `{mode: ipam, poolRefs: [{name: one}, {name: default}]}`, available: 34, tenants: 3, wantMessage: "34 IPs, ~3 tenants",
		},
		"the tenants of each pool": { // one tenant needs 13 addresses of the first pool, the other pool has room for one more
			network: `{mode: ipam, poolRefs: [{name: default}, {name: one}]}`, available: 34, tenants: 3, wantMessage: "34 IPs, ~3 tenants",
		},
		"fragmented": {network: `{mode: ipam, poolRefs: [{name: pieces}]}`, available: 24, wantMessage: "24 IPs, ~0 tenants; no pool has room for a tenant's addresses for loadbalancer"},
		"common addresses count once": {
			network: `{mode: ipam, poolRefs: [{name: a}, {name: window}]}`, available: 30, tenants: 2, wantMessage: "30 IPs, ~2 tenants",
		},
		"equal addresses of two routing domains": {
			network: `{mode: ipam, poolRefs: [{name: a}, {name: red}]}`, available: 60, tenants: 5, wantMessage: "60 IPs, ~5 tenants",
		},
		"paused": {
			network:   `{mode: ipam, poolRefs: [{name: a}, {name: paused}, {name: b}]}`,
			available: 296, tenants: 2, wantMessage: "296 IPs, ~2 tenants; then tenants wait for NetworkPool paused, which is paused or invalid",
		},
		"no pool named":    {network: `{mode: ipam}`, reason: "ValidationFailed", wantMessage: "the ProviderConfig names no NetworkPool: " + addPool},
		"no pool exists":   {network: `{mode: ipam, poolRefs: [{name: x}, {name: z}]}`, reason: "PoolNotFound", wantMessage: "none of the NetworkPools of the ProviderConfig exists: create x or z"},
		"full":             {network: `{mode: ipam, poolRefs: [{name: full}]}`, reason: "PoolExhausted", wantMessage: "no address is free: grow a NetworkPool, or add another to spec.network.poolRefs"},
		"no default sizes": {network: `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {defaultPoolSize: 0}}`, external: true, available: 30, tenants: 1<<31 - 1, wantMessage: "30 IPs, 2^31 tenants or more"},
		"more than int64":  {network: `{mode: ipam, poolRefs: [{name: huge}, {name: a}]}`, available: 1<<31 - 1, tenants: 1<<31 - 1, wantMessage: "2^63 IPs or more, 2^31 tenants or more"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy(t, tc.network)
			p.Nodes = !tc.external
			got, condition := plan.EstimateCapacity(p, pools, free)
			if diff := cmp.Diff(v1alpha1.ProviderCapacity{AvailableIPs: tc.available, EstimatedTenants: tc.tenants}, got); diff != "" {
				t.Errorf("capacity (-want +got):\n%s", diff)
			}
			want := metav1.Condition{Type: "PoolAvailable", Status: "False", Reason: tc.reason, Message: tc.wantMessage}
			if tc.reason == "" {
				want.Status, want.Reason = "True", "PoolAvailable"
			}
			if diff := cmp.Diff(want, condition); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusals_String_IsBounded(t *testing.T) {
	var r plan.Refusals
	for i := range 300 {
		r.Add(fmt.Sprint("pool-", i%256), fmt.Sprint("full ", i))
	}
	if want := "full 44; full 45; full 46; full 47; full 48; full 49; full 50; full 51; 249 more pools"; r.String("x") != want {
		t.Errorf("%q, want %q", r.String("x"), want)
	}
}

func TestExplainPoolSize(t *testing.T) {
	const static, elastic = `{mode: ipam, poolRefs: [{name: a}]}`, `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic}}`
	initial := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.80/29")
	for name, tc := range map[string]struct {
		network string
		size    int32
		have    []v1alpha1.IPAllocation
		want    string
	}{
		"large enough": {static, 8, []v1alpha1.IPAllocation{initial}, ""},
		"no block yet": {static, 16, nil, ""},
		"cloud":        {`{mode: cloud}`, 16, []v1alpha1.IPAllocation{initial}, ""},
		"static": {static, 16, []v1alpha1.IPAllocation{initial},
			"spec.networking.lbPoolSize is 16, and the tenant has 8 addresses for load balancers: lbPoolSize counted when IPAllocation team-x-mycluster-lb was created; for more addresses, create another IPAllocation of type loadbalancer for this TenantCluster"},
		"another": {static, 16, []v1alpha1.IPAllocation{initial, allocation(t, "more", "initial", "10.40.0.88/29")}, ""},
		"elastic": {elastic, 16, []v1alpha1.IPAllocation{initial},
			"spec.networking.lbPoolSize is 16, and the tenant has 8 addresses for load balancers: lbPoolSize counts when the initial block is allocated, and more addresses are added as Services need them"},
		"quota": {`{mode: ipam, poolRefs: [{name: a}], quotaPerTenant: {maxLoadBalancerIPs: 8}}`, 16, []v1alpha1.IPAllocation{initial},
			"spec.networking.lbPoolSize is 16, and the tenant has 8 addresses for load balancers: the quota allows no more (quotaPerTenant.maxLoadBalancerIPs 8)"},
	} {
		sized := tenant
		sized.LBPoolSize = tc.size
		if got := plan.ExplainPoolSize(sized, policy(t, tc.network), plan.BlocksOf(sized, tc.have)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
