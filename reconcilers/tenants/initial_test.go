package tenants_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

func TestWhatATenantStartsWith(t *testing.T) {
	pools := map[string]*v1alpha1.NetworkPool{
		"a": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/24}}`),
		"b": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.41.0.0/24, tenantAllocation: {defaults: {nodesPerTenant: 3, lbPoolPerTenant: 4}}}}`),
	}
	const (
		elastic = `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {allocationMode: elastic}}`
		static  = `{mode: ipam, poolRefs: [{name: a}, {name: b}]}`
	)
	tries := func(a, b int32) []tenants.Try { return []tenants.Try{{"a", a}, {"b", b}} }
	nodes := tenants.Wish{Kind: v1alpha1.TypeNodes, Tries: tries(5, 3)}
	lb := func(n int32) tenants.Wish { return tenants.Wish{Kind: v1alpha1.TypeLoadBalancer, Tries: tries(n, n)} }
	ofPools := tenants.Wish{Kind: v1alpha1.TypeLoadBalancer, Tries: tries(8, 4)} // the numbers of the pools
	first := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.0/29")
	failed := func(change ...func(*v1alpha1.IPAllocation)) v1alpha1.IPAllocation {
		f := allocation(t, "team-x-mycluster-lb", "initial", "")
		f.Status.Phase, f.Spec.PoolRef.Name = v1alpha1.PhaseFailed, "a"
		for _, c := range change {
			c(&f)
		}
		return f
	}
	replaced := []tenants.Wish{nodes, {Kind: v1alpha1.TypeLoadBalancer, Stale: "team-x-mycluster-lb", Tries: []tenants.Try{{"b", 4}, {"a", 8}}}}
	cases := map[string]struct {
		network string
		tenant  tenants.Tenant
		have    []v1alpha1.IPAllocation
		want    []tenants.Wish
	}{
		"cloud":                                 {network: `{mode: cloud, poolRefs: [{name: a}]}`, tenant: tenants.Tenant{Ingress: true}},
		"static":                                {network: static, tenant: tenants.Tenant{Ingress: true}, want: []tenants.Wish{nodes, ofPools}},
		"static, no ingress":                    {network: static, want: []tenants.Wish{nodes, ofPools}},
		"static, its provider's number":         {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {defaultPoolSize: 6}}`, want: []tenants.Wish{nodes, lb(6)}},
		"static, the API server's number":       {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {defaultPoolSize: 8}}`, want: []tenants.Wish{nodes, ofPools}},
		"elastic":                               {network: elastic, tenant: tenants.Tenant{Ingress: true}, want: []tenants.Wish{nodes, lb(2)}},
		"elastic, no ingress":                   {network: elastic, want: []tenants.Wish{nodes}},
		"elastic, its own number":               {network: elastic, tenant: tenants.Tenant{LBPoolSize: 4}, want: []tenants.Wish{nodes, lb(4)}},
		"static, its own number":                {network: static, tenant: tenants.Tenant{LBPoolSize: 4, Ingress: true}, want: []tenants.Wish{nodes, lb(4)}},
		"quotas":                                {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}], quotaPerTenant: {maxNodeIPs: 4, maxLoadBalancerIPs: 6}}`, tenant: tenants.Tenant{LBPoolSize: 10}, want: []tenants.Wish{{Kind: v1alpha1.TypeNodes, Tries: tries(4, 3)}, lb(6)}},
		"priority before order":                 {network: `{mode: ipam, poolRefs: [{name: b, priority: 1}, {name: a}]}`, want: []tenants.Wish{nodes, ofPools}},
		"pools that do not exist":               {network: `{mode: ipam, poolRefs: [{name: x}, {name: a}]}`, want: []tenants.Wish{{Kind: v1alpha1.TypeNodes, Tries: []tenants.Try{{"a", 5}}}, {Kind: v1alpha1.TypeLoadBalancer, Tries: []tenants.Try{{"a", 8}}}}},
		"none that exists":                      {network: `{mode: ipam, poolRefs: [{name: x}]}`, want: []tenants.Wish{{Kind: v1alpha1.TypeNodes}, {Kind: v1alpha1.TypeLoadBalancer}}},
		"one that it has":                       {network: static, have: []v1alpha1.IPAllocation{first}, want: []tenants.Wish{nodes}},
		"one that failed, made for it":          {network: static, have: []v1alpha1.IPAllocation{failed()}, want: replaced},
		"one that failed, restored":             {network: static, have: []v1alpha1.IPAllocation{failed(restored)}, want: replaced},
		"one that failed, made by hand":         {network: static, have: []v1alpha1.IPAllocation{failed(pinned)}, want: []tenants.Wish{nodes}},
		"one that failed, kept":                 {network: static, have: []v1alpha1.IPAllocation{failed(kept)}, want: []tenants.Wish{nodes}},
		"added ones, which count for the quota": {network: `{mode: ipam, poolRefs: [{name: a}], quotaPerTenant: {maxLoadBalancerIPs: 9}}`, have: []v1alpha1.IPAllocation{allocation(t, "team-x-mycluster-lb-1", "growth", "10.40.0.0/29")}, want: []tenants.Wish{{Kind: v1alpha1.TypeNodes, Tries: []tenants.Try{{"a", 5}}}, {Kind: v1alpha1.TypeLoadBalancer, Tries: []tenants.Try{{"a", 1}}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.tenant.Namespace, tc.tenant.Name, tc.tenant.UID = tenant.Namespace, tenant.Name, tenant.UID
			got := tenants.Missing(tc.tenant, policy(t, tc.network), tenants.BlocksOf(tc.tenant, tc.have), pools)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("wishes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNetworkReadySaysWhatATenantWaitsFor(t *testing.T) {
	first := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.80/29")
	notReady := *first.DeepCopy()
	notReady.Status.Conditions = nil
	failed := allocation(t, "by-hand", "initial", "")
	failed.Status.Phase = v1alpha1.PhaseFailed
	lb := v1alpha1.TypeLoadBalancer
	tries := []tenants.Try{{"a", 8}}
	cases := map[string]struct {
		network  string
		have     []v1alpha1.IPAllocation
		wishes   []tenants.Wish
		refusals map[v1alpha1.IPAllocationType]tenants.Refusals
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		"cloud":     {network: `{}`, status: "True", reason: "Ready", message: "the cloud provides the network"},
		"no pool":   {network: `{mode: ipam}`, status: "False", reason: "NetworkNotReady", message: "the ProviderConfig names no NetworkPool: add one to spec.network.poolRefs"},
		"pool gone": {network: `{mode: ipam, poolRefs: [{name: a}]}`, wishes: []tenants.Wish{{Kind: lb}}, status: "False", reason: "PoolNotFound", message: "no NetworkPool for loadbalancer exists: create a"},
		"exhausted": {network: `{mode: ipam, poolRefs: [{name: a}]}`, wishes: []tenants.Wish{{Kind: lb, Tries: tries}}, refusals: map[v1alpha1.IPAllocationType]tenants.Refusals{lb: {{Pool: "a", Text: "a: 8 requested, 3 free"}}}, status: "False", reason: "PoolExhausted", message: "no pool has room for loadbalancer: a: 8 requested, 3 free"},
		"exhausted, every pool": {network: `{mode: ipam, poolRefs: [{name: a}, {name: x}, {name: b}]}`, wishes: []tenants.Wish{{Kind: lb, Tries: []tenants.Try{{"a", 8}, {"b", 8}}}},
			refusals: map[v1alpha1.IPAllocationType]tenants.Refusals{lb: {{Pool: "a", Text: "a: 8 requested, 3 free"}, {Pool: "b", Text: "b: 8 requested, 0 free"}}}, status: "False", reason: "PoolExhausted",
			message: "no pool has room for loadbalancer: a: 8 requested, 3 free; b: 8 requested, 0 free; pool x does not exist, or is being deleted"},
		"asked":     {network: `{mode: ipam, poolRefs: [{name: a}]}`, wishes: []tenants.Wish{{Kind: lb, Tries: tries}}, status: "False", reason: "Reconciling", message: "addresses for loadbalancer are being allocated"},
		"not ready": {network: `{mode: ipam, poolRefs: [{name: a}]}`, have: []v1alpha1.IPAllocation{notReady}, status: "False", reason: "Reconciling", message: "IPAllocation team-x-mycluster-lb is not ready yet"},
		"failed":    {network: `{mode: ipam, poolRefs: [{name: a}]}`, have: []v1alpha1.IPAllocation{failed}, status: "False", reason: "AllocationFailed", message: "IPAllocation by-hand has failed: see its condition Ready, correct or delete it"},
		"ready":     {network: `{mode: ipam, poolRefs: [{name: a}]}`, have: []v1alpha1.IPAllocation{first}, status: "True", reason: "Ready", message: "loadbalancer 10.40.0.80/29"},
		"skipped":   {network: `{mode: ipam, poolRefs: [{name: a}]}`, status: "True", reason: "Ready", message: "no addresses are needed to begin with"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := metav1.Condition{Type: "NetworkReady", Status: tc.status, Reason: tc.reason, Message: tc.message}
			got := tenants.NetworkReady(policy(t, tc.network), tenants.BlocksOf(tenant, tc.have), tc.wishes, tc.refusals)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAddressesAreSpreadOnlyWhereNoPoolHasOneBlock(t *testing.T) {
	cases := map[string]struct {
		need, want int32
		blocks     map[string][]int32 // pool -> its free blocks
		wantGot    int32
		wantGiven  []tenants.Try
	}{
		"one block of the first":            {need: 3, want: 4, blocks: map[string][]int32{"a": {4}, "b": {8}}, wantGot: 4, wantGiven: []tenants.Try{{"a", 4}}},
		"one block of the second":           {need: 3, want: 4, blocks: map[string][]int32{"a": {2, 2}, "b": {8}}, wantGot: 4, wantGiven: []tenants.Try{{"b", 4}}},
		"what is needed rather than a step": {need: 3, want: 8, blocks: map[string][]int32{"a": {3}}, wantGot: 3, wantGiven: []tenants.Try{{"a", 3}}},
		"pieces":                            {need: 5, want: 5, blocks: map[string][]int32{"a": {2, 2, 1}}, wantGot: 5, wantGiven: []tenants.Try{{"a", 2}, {"a", 2}, {"a", 1}}},
		"all there is":                      {need: 5, want: 5, blocks: map[string][]int32{"a": {1}, "b": {1, 1}}, wantGot: 3, wantGiven: []tenants.Try{{"a", 1}, {"b", 1}, {"b", 1}}},
		"nothing":                           {need: 1, want: 2, blocks: map[string][]int32{}},
		"nothing needed":                    {blocks: map[string][]int32{"a": {4}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var given []tenants.Try
			got, err := tenants.Spread([]string{"a", "b"}, tc.need, tc.want, func(try tenants.Try) (bool, error) {
				free := tc.blocks[try.Pool]
				i := slices.IndexFunc(free, func(n int32) bool { return n >= try.Count })
				if i < 0 {
					return false, nil
				}
				free[i] -= try.Count
				given = append(given, try)
				return true, nil
			})
			if err != nil || got != tc.wantGot {
				t.Errorf("want %d, got %d, %v", tc.wantGot, got, err)
			}
			if diff := cmp.Diff(tc.wantGiven, given); diff != "" {
				t.Errorf("given (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnErrorThatSaysNothingAboutRoomEndsTheSearch(t *testing.T) {
	gone, asked := errors.New("no connection"), 0
	got, err := tenants.Spread([]string{"a", "b"}, 2, 2, func(tenants.Try) (bool, error) { asked++; return false, gone })
	if got != 0 || !errors.Is(err, gone) || asked != 1 {
		t.Errorf("got %d, %v after asking %d times", got, err, asked)
	}
}

func TestCapacityCountsWhatATenantReallyGets(t *testing.T) {
	pool := func(available int64) *v1alpha1.NetworkPool {
		p := read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/24, tenantAllocation: {defaults: {nodesPerTenant: 3, lbPoolPerTenant: 9}}}}`)
		p.Status.AvailableIPs = available
		return p
	}
	pools := map[string]*v1alpha1.NetworkPool{"a": pool(30), "b": pool(10), "full": pool(0), "huge": pool(1<<63 - 1)}
	cases := map[string]struct {
		network             string
		external            bool
		available, tenants  int32
		status              metav1.ConditionStatus
		reason, wantMessage string
	}{
		"static":                   {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}]}`, available: 40, tenants: 3, status: "True", reason: "PoolAvailable", wantMessage: "40 IPs, ~3 tenants"},
		"elastic":                  {network: `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {allocationMode: elastic}}`, available: 40, tenants: 8, status: "True", reason: "PoolAvailable", wantMessage: "40 IPs, ~8 tenants"},
		"without nodes":            {network: `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic}}`, external: true, available: 30, tenants: 15, status: "True", reason: "PoolAvailable", wantMessage: "30 IPs, ~15 tenants"},
		"within quotas":            {network: `{mode: ipam, poolRefs: [{name: a}], quotaPerTenant: {maxNodeIPs: 1, maxLoadBalancerIPs: 4}}`, available: 30, tenants: 6, status: "True", reason: "PoolAvailable", wantMessage: "30 IPs, ~6 tenants"},
		"no pool named":            {network: `{mode: ipam}`, status: "False", reason: "ValidationFailed", wantMessage: "no NetworkPool is named: add one to spec.network.poolRefs"},
		"no pool exists":           {network: `{mode: ipam, poolRefs: [{name: x}, {name: z}]}`, status: "False", reason: "PoolNotFound", wantMessage: "none of the NetworkPools of the ProviderConfig exists: create x or z"},
		"full":                     {network: `{mode: ipam, poolRefs: [{name: full}]}`, status: "False", reason: "PoolExhausted", wantMessage: "no address is free: grow a NetworkPool, or add another to spec.network.poolRefs"},
		"no numbers at all":        {network: `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {defaultPoolSize: 0}}`, external: true, available: 30, tenants: 30, status: "True", reason: "PoolAvailable", wantMessage: "30 IPs, ~30 tenants"},
		"more than can be counted": {network: `{mode: ipam, poolRefs: [{name: huge}, {name: a}]}`, available: 1<<31 - 1, tenants: 1<<31 - 1, status: "True", reason: "PoolAvailable", wantMessage: "2^63 IPs or more, for as many tenants as there will be"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy(t, tc.network)
			p.Nodes = !tc.external
			got, condition := tenants.Capacity(p, pools)
			if diff := cmp.Diff(v1alpha1.ProviderCapacity{AvailableIPs: tc.available, EstimatedTenants: tc.tenants}, got); diff != "" {
				t.Errorf("capacity (-want +got):\n%s", diff)
			}
			want := metav1.Condition{Type: "PoolAvailable", Status: tc.status, Reason: tc.reason, Message: tc.wantMessage}
			if diff := cmp.Diff(want, condition); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusalsOfManyPoolsFitIntoACondition(t *testing.T) {
	var r tenants.Refusals
	for i := range 300 {
		r.Add(fmt.Sprint("pool-", i%256), fmt.Sprint("full ", i))
	}
	if want := "full 44; full 45; full 46; full 47; full 48; full 49; full 50; full 51; 249 more pools"; r.String("x") != want {
		t.Errorf("%q, want %q", r.String("x"), want)
	}
}

func TestAnLBPoolSizeThatIsRaisedLaterIsAnswered(t *testing.T) {
	const static, elastic = `{mode: ipam, poolRefs: [{name: a}]}`, `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic}}`
	first := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.80/29")
	for name, tc := range map[string]struct {
		network string
		size    int32
		have    []v1alpha1.IPAllocation
		want    string
	}{
		"as large": {static, 8, []v1alpha1.IPAllocation{first}, ""},
		"none yet": {static, 16, nil, ""},
		"cloud":    {`{mode: cloud}`, 16, []v1alpha1.IPAllocation{first}, ""},
		"static": {static, 16, []v1alpha1.IPAllocation{first},
			"spec.networking.lbPoolSize is 16, and the tenant has 8 addresses for load balancers: lbPoolSize counted when IPAllocation team-x-mycluster-lb was made; for more, create another IPAllocation of type loadbalancer for this TenantCluster"},
		"another": {static, 16, []v1alpha1.IPAllocation{first, allocation(t, "more", "initial", "10.40.0.88/29")}, ""},
		"elastic": {elastic, 16, []v1alpha1.IPAllocation{first},
			"spec.networking.lbPoolSize is 16, and the tenant has 8 addresses for load balancers: lbPoolSize counts when the first block is made, and more are added as Services ask for them"},
		"quota": {`{mode: ipam, poolRefs: [{name: a}], quotaPerTenant: {maxLoadBalancerIPs: 8}}`, 16, []v1alpha1.IPAllocation{first},
			"spec.networking.lbPoolSize is 16, and the tenant has 8 addresses for load balancers: the quota allows no more (quotaPerTenant.maxLoadBalancerIPs 8)"},
	} {
		of := tenant
		of.LBPoolSize = tc.size
		if got := tenants.SizeNote(of, policy(t, tc.network), tenants.BlocksOf(of, tc.have)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
