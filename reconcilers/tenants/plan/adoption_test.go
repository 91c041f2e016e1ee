package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

func rangesOf(t *testing.T, texts ...string) (ranges []allocator.Range) {
	t.Helper()
	for _, text := range texts {
		ranges = append(ranges, rangeOf(t, text))
	}
	return ranges
}

func TestFindAdoptions(t *testing.T) {
	pools := map[string]*v1alpha1.NetworkPool{
		"a": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/24, gateway: 10.40.0.1, reserved: [{cidr: 10.40.0.64/30}]}}`),
		"b": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/23, tenantAllocation: {ranges: [{start: 10.40.0.128, end: 10.40.1.99}]}}}`),
	}
	pools["a"].Status.InfrastructureAllocations = []v1alpha1.InfrastructureAllocation{{IP: "10.40.0.9", Source: "node"}}
	const free = `{mode: ipam, poolRefs: [{name: a}, {name: b}]}`
	within := func(quota string) string {
		return `{mode: ipam, poolRefs: [{name: a}, {name: b}], quotaPerTenant: {maxLoadBalancerIPs: ` + quota + `}}`
	}
	cases := map[string]struct {
		network      string
		have         []v1alpha1.IPAllocation
		inPool       []string
		otherPools   []string
		services     []plan.Service
		want         []string // pool range (parts in use)
		wantObstacle string   // reason and a part of the message
	}{
		"nothing":                       {network: free},
		"pool":                          {network: free, inPool: []string{"10.40.0.100-10.40.0.102"}, want: []string{"a 10.40.0.100-10.40.0.102 ()"}},
		"pool in use":                   {network: free, inPool: []string{"10.40.0.100-10.40.0.102"}, services: served("10.40.0.100", "10.40.0.102"), want: []string{"a 10.40.0.100-10.40.0.102 (10.40.0.100 10.40.0.102)"}},
		"known ranges":                  {network: free, inPool: []string{"10.40.0.100-10.40.0.109"}, have: []v1alpha1.IPAllocation{allocation(t, "x", "growth", "10.40.0.102-10.40.0.103")}, want: []string{"a 10.40.0.100-10.40.0.101 ()", "a 10.40.0.104-10.40.0.109 ()"}},
		"reserved, gateway":             {network: free, inPool: []string{"10.40.0.0-10.40.0.2", "10.40.0.60-10.40.0.70"}, want: []string{"a 10.40.0.0 ()", "a 10.40.0.2 ()", "a 10.40.0.60-10.40.0.63 ()", "a 10.40.0.68-10.40.0.70 ()"}},
		"address of a node":             {network: free, inPool: []string{"10.40.0.9"}, want: []string{"a 10.40.0.9 ()"}}, // the denial of the pool is the obstacle
		"outside":                       {network: free, inPool: []string{"10.41.0.0/24", "fd00::/64"}, services: served("10.41.0.9")},
		"several pools":                 {network: free, inPool: []string{"10.40.0.250-10.40.1.120"}, want: []string{"a 10.40.0.250-10.40.0.255 ()", "b 10.40.1.0-10.40.1.99 ()"}},
		"order of the policy":           {network: `{mode: ipam, poolRefs: [{name: a}, {name: b, priority: -1}]}`, inPool: []string{"10.40.0.250"}, want: []string{"b 10.40.0.250 ()"}},
		"other pools, one block each":   {network: free, inPool: []string{"10.40.0.100-10.40.0.101"}, otherPools: []string{"10.40.0.102-10.40.0.103"}, want: []string{"a 10.40.0.100-10.40.0.101 ()", "a 10.40.0.102-10.40.0.103 ()"}},
		"Services":                      {network: free, services: served("10.40.0.100", "10.40.0.101", "10.40.0.110"), want: []string{"a 10.40.0.100-10.40.0.101 (10.40.0.100-10.40.0.101)", "a 10.40.0.110 (10.40.0.110)"}},
		"within the quota":              {network: within("3"), inPool: []string{"10.40.0.100-10.40.0.102"}, want: []string{"a 10.40.0.100-10.40.0.102 ()"}},
		"unused addresses beyond quota": {network: within("2"), inPool: []string{"10.40.0.100-10.40.0.102"}, services: served("10.40.0.100", "10.40.0.102"), want: []string{"a 10.40.0.100 (10.40.0.100)", "a 10.40.0.102 (10.40.0.102)"}},
		"beyond the quota": {network: within("2"), have: []v1alpha1.IPAllocation{allocation(t, "x", "initial", "10.40.0.0")}, inPool: []string{"10.40.0.100-10.40.0.109"}, services: served("10.40.0.100", "10.40.0.102", "10.40.0.104"),
			want: []string{"a 10.40.0.100 (10.40.0.100)"}, wantObstacle: "QuotaExceeded: 10.40.0.102, 10.40.0.104 are in use and more than the quota allows (quotaPerTenant.maxLoadBalancerIPs 2): raise the quota"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := plan.View{Services: tc.services, InPool: rangesOf(t, tc.inPool...), OtherPools: rangesOf(t, tc.otherPools...)}
			requests, obstacles := plan.FindAdoptions(policy(t, tc.network), plan.BlocksOf(tenant, tc.have), v, pools)
			var got []string
			for _, r := range requests {
				var used []string
				for _, u := range r.InUse {
					used = append(used, u.String())
				}
				got = append(got, fmt.Sprintf("%s %s (%s)", r.Pool, r.Range, strings.Join(used, " ")))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("adoptions (-want +got):\n%s", diff)
			}
			obstacle := ""
			for _, o := range obstacles {
				obstacle += o.Reason + ": " + o.Message
			}
			if !strings.HasPrefix(obstacle, tc.wantObstacle) || tc.wantObstacle == "" && obstacle != "" {
				t.Errorf("obstacles %q, want %q", obstacle, tc.wantObstacle)
			}
		})
	}
}

func TestFindAdoptions_IsBounded(t *testing.T) {
	pools := map[string]*v1alpha1.NetworkPool{"a": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/22}}`)}
	var addresses []string
	for i := range 200 {
		addresses = append(addresses, fmt.Sprintf("10.40.%d.%d", i/100, i%100*2))
	}
	requests, obstacles := plan.FindAdoptions(policy(t, `{mode: ipam, poolRefs: [{name: a}]}`), nil, plan.View{Services: served(addresses...)}, pools)
	if len(requests) != 64 || len(obstacles) != 1 || !strings.Contains(obstacles[0].Message, "128 more ranges are in use") {
		t.Errorf("%d requests, obstacles %v", len(requests), obstacles)
	}
}

func TestMissingBlocks_ManualRange(t *testing.T) {
	pools := map[string]*v1alpha1.NetworkPool{
		"a": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.200/32}], tenantAllocation: {ranges: [{start: 10.40.0.0, end: 10.40.0.63}, {start: 10.40.0.64, end: 10.40.0.255}]}}}`),
		"b": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/25}}`),
	}
	const (
		elastic = `{mode: ipam, poolRefs: [{name: a}, {name: b}], loadBalancer: {allocationMode: elastic}}`
		static  = `{mode: ipam, poolRefs: [{name: a}, {name: b}]}`
	)
	pinned := func(first, last string, obstacle plan.Obstacle, candidates ...plan.Candidate) []plan.MissingBlock {
		return []plan.MissingBlock{{Kind: v1alpha1.TypeLoadBalancer, Candidates: candidates, Obstacle: obstacle, Pinned: &v1alpha1.PinnedIPRange{StartAddress: first, EndAddress: last}}}
	}
	sized := func(n int32) []plan.MissingBlock {
		return []plan.MissingBlock{{Kind: v1alpha1.TypeLoadBalancer, Candidates: []plan.Candidate{{"a", n}, {"b", n}}}}
	}
	three := pinned("10.40.0.100", "10.40.0.102", plan.Obstacle{}, plan.Candidate{Pool: "a", Count: 3}, plan.Candidate{Pool: "b", Count: 3})
	cases := map[string]struct {
		network string
		manual  string
		size    int32
		ingress bool
		have    []v1alpha1.IPAllocation
		want    []plan.MissingBlock
	}{
		"static":                         {network: static, manual: "10.40.0.100-10.40.0.102", want: three},
		"elastic, no ingress":            {network: elastic, manual: "10.40.0.100-10.40.0.102", want: three},
		"smaller lbPoolSize":             {network: elastic, manual: "10.40.0.100-10.40.0.102", size: 1, want: three},
		"larger lbPoolSize":              {network: static, manual: "10.40.0.100-10.40.0.102", size: 9, want: three},
		"one pool":                       {network: static, manual: "10.40.0.128-10.40.0.129", want: pinned("10.40.0.128", "10.40.0.129", plan.Obstacle{}, plan.Candidate{Pool: "a", Count: 2})},
		"no pool":                        {network: static, manual: "10.41.0.0-10.41.0.1", want: sized(8)},
		"partly reserved":                {network: static, manual: "10.40.0.199-10.40.0.201", want: sized(8)},
		"two ranges of a pool, or one":   {network: static, manual: "10.40.0.60-10.40.0.70", want: pinned("10.40.0.60", "10.40.0.70", plan.Obstacle{}, plan.Candidate{Pool: "b", Count: 11})},
		"block present":                  {network: static, manual: "10.40.0.100-10.40.0.102", have: []v1alpha1.IPAllocation{allocation(t, "x", "initial", "10.40.0.8/29")}},
		"growth block present":           {network: elastic, manual: "10.40.0.100-10.40.0.102", have: []v1alpha1.IPAllocation{allocation(t, "x-1", "growth", "10.40.0.8/29")}, want: three},
		"no pool, elastic, no ingress":   {network: elastic, manual: "10.41.0.0-10.41.0.1"},
		"no pool, elastic, with ingress": {network: elastic, manual: "10.41.0.0-10.41.0.1", ingress: true, want: sized(2)},
		"beyond the quota": {network: `{mode: ipam, poolRefs: [{name: b}], quotaPerTenant: {maxLoadBalancerIPs: 2}}`, manual: "10.40.0.100-10.40.0.102",
			want: pinned("10.40.0.100", "10.40.0.102", plan.Obstacle{Reason: "QuotaExceeded", Message: "spec.networking.loadBalancerPool 10.40.0.100-10.40.0.102 has 3 addresses, and the quota allows 2 more " +
				"(quotaPerTenant.maxLoadBalancerIPs 2): raise the quota, or shorten or remove the range"}, plan.Candidate{Pool: "b", Count: 3})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy(t, tc.network)
			p.Nodes = false
			tenant := tenant
			tenant.ManualRange, tenant.LBPoolSize, tenant.Ingress = rangeOf(t, tc.manual), tc.size, tc.ingress
			if diff := cmp.Diff(tc.want, plan.MissingBlocks(tenant, p, plan.BlocksOf(tenant, tc.have), pools)); diff != "" {
				t.Errorf("missing blocks (-want +got):\n%s", diff)
			}
		})
	}
}

// A pool of others loses no address that a Service uses, or may use.
func TestDecide_KeepPool(t *testing.T) {
	ready := allocation(t, "x", "initial", "10.40.0.0-10.40.0.3")
	notReady := allocation(t, "y", "initial", "10.40.0.100-10.40.0.102")
	notReady.Status.Conditions = nil
	type decision struct {
		KeepPool bool
		Lost     []allocator.Range
		Need     int32
	}
	cases := map[string]struct {
		view     plan.View
		have     []v1alpha1.IPAllocation
		want     decision
		contents string // of condition AddressesAdopted
	}{
		"unused pool":         {view: plan.View{InPool: rangesOf(t, "10.40.0.100/30")}, have: []v1alpha1.IPAllocation{ready}, contents: "True Adopted"},
		"no pool":             {view: plan.View{Services: served("10.40.0.100")}, contents: "True Adopted"},
		"used pool":           {view: plan.View{InPool: rangesOf(t, "10.40.0.100/30"), Services: served("10.40.0.100", "10.40.0.103")}, have: []v1alpha1.IPAllocation{ready}, want: decision{KeepPool: true, Lost: rangesOf(t, "10.40.0.100", "10.40.0.103")}, contents: "False NotOffered"},
		"used address kept":   {view: plan.View{InPool: rangesOf(t, "10.40.0.0-10.40.0.9"), Services: served("10.40.0.3")}, have: []v1alpha1.IPAllocation{ready}, contents: "True Adopted"},
		"block not ready":     {view: plan.View{InPool: rangesOf(t, "10.40.0.100-10.40.0.102"), Services: served("10.40.0.100")}, have: []v1alpha1.IPAllocation{notReady}, want: decision{KeepPool: true, Lost: rangesOf(t, "10.40.0.100")}, contents: "False Reconciling"},
		"unknown Services":    {view: plan.View{InPool: rangesOf(t, "10.40.0.100"), Partial: true}, have: []v1alpha1.IPAllocation{ready}, want: decision{KeepPool: true}, contents: "False TooManyServices"},
		"no blocks, no range": {view: plan.View{InPool: rangesOf(t, "10.40.0.100"), Services: served("10.40.0.100")}, want: decision{KeepPool: true, Lost: rangesOf(t, "10.40.0.100")}, contents: "False NotOffered"},
		"no growth meanwhile": {view: plan.View{InPool: rangesOf(t, "10.40.0.100"), Services: append(waiting(9, ago(2)), served("10.40.0.100")...)}, want: decision{KeepPool: true, Lost: rangesOf(t, "10.40.0.100")}, contents: "False NotOffered"},
		"growth":              {view: plan.View{InPool: rangesOf(t, "10.40.0.100"), Services: waiting(9, ago(2))}, want: decision{Need: 9}, contents: "True Adopted"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.view.Foreign = true
			got := decide(t, elasticOne, tc.have, tc.view)
			if diff := cmp.Diff(tc.want, decision{got.KeepPool, got.Lost, got.Need}, compareRanges, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			c := plan.AdoptionCondition(plan.BlocksOf(tenant, tc.have), tc.view, got, nil)
			if contents := string(c.Status) + " " + c.Reason; contents != tc.contents {
				t.Errorf("condition %s: %s; want %s", contents, c.Message, tc.contents)
			}
			tc.view.Foreign = false
			if own := decide(t, elasticOne, tc.have, tc.view); own.KeepPool {
				t.Error("a pool of IPAM stays as it is")
			}
		})
	}
}

func TestAdoptionCondition_NamesObstacles(t *testing.T) {
	obstacles := []plan.Obstacle{{Reason: "AddressConflict", Message: "10.40.0.100 not adopted: owned"}, {Reason: "QuotaExceeded", Message: "too many"}}
	v := plan.View{InPool: rangesOf(t, "10.40.0.100"), Services: served("10.40.0.100"), Foreign: true}
	c := plan.AdoptionCondition(nil, v, decide(t, elasticOne, nil, v), obstacles)
	if want := "10.40.0.100 not adopted: owned; too many; IPAddressPool default-pool stays as it is meanwhile, because Services use it"; c.Reason != "AddressConflict" || c.Message != want {
		t.Errorf("%s: %s, want %s", c.Reason, c.Message, want)
	}
}

func TestDecide_OfferedBesideOthers(t *testing.T) {
	manual := tenant
	manual.ManualRange = rangeOf(t, "10.9.0.1-10.9.0.9")
	class := balancer("class")
	class.Spec.LoadBalancerClass = ptr.To("example.com/other")
	class.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.40.0.9"}}
	other := plan.ServiceOf(class, ipv4, noon, false)
	block := allocation(t, "a", "initial", "10.40.0.8-10.40.0.9")
	cases := map[string]struct {
		tenant plan.Tenant
		have   []v1alpha1.IPAllocation
		view   plan.View
		want   []string
	}{
		"manual range in use":                     {tenant: manual, have: []v1alpha1.IPAllocation{block}, view: plan.View{Services: served("10.9.0.9")}, want: []string{"10.9.0.1-10.9.0.9", "10.40.0.8-10.40.0.9"}},
		"block of another MetalLB pool":           {tenant: tenant, have: []v1alpha1.IPAllocation{block}, view: plan.View{OtherPools: rangesOf(t, "10.40.0.9-10.40.0.12")}},
		"in both MetalLB pools":                   {tenant: tenant, have: []v1alpha1.IPAllocation{block}, view: plan.View{InPool: rangesOf(t, "10.40.0.8-10.40.0.9"), OtherPools: rangesOf(t, "10.40.0.9")}, want: []string{"10.40.0.8-10.40.0.9"}},
		"block of another load balancer":          {tenant: tenant, have: []v1alpha1.IPAllocation{block}, view: plan.View{Services: []plan.Service{other}}},
		"another class, served from MetalLB pool": {tenant: tenant, have: []v1alpha1.IPAllocation{block}, view: plan.View{InPool: rangesOf(t, "10.40.0.8-10.40.0.9"), Services: []plan.Service{other}}, want: []string{"10.40.0.8-10.40.0.9"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := plan.Decide(tc.tenant, policy(t, elasticOne), plan.BlocksOf(tc.tenant, tc.have), tc.view, plan.DefaultTiming, noon)
			if diff := cmp.Diff(rangesOf(t, tc.want...), got.Offered, compareRanges); diff != "" {
				t.Errorf("offered (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithoutManaged(t *testing.T) {
	pools := map[string]*v1alpha1.NetworkPool{"a": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}]}}`)}
	p := policy(t, elasticOne)
	for text, managed := range map[string]bool{"10.40.0.100-10.40.0.102": true, "10.39.255.0-10.40.0.20": true, "10.40.0.0-10.40.0.15": false, "10.41.0.0-10.41.0.9": false} {
		manual := tenant
		manual.ManualRange = rangeOf(t, text)
		if left := manual.WithoutManaged(p, pools).ManualRange.IsValid(); left == managed {
			t.Errorf("%s is offered without an allocation: %t", text, left)
		}
	}
}

func TestAdoptedName_DiffersByAddressAndTenant(t *testing.T) {
	nobody := func(string) bool { return false }
	for text, want := range map[string]string{
		"10.40.0.100-10.40.0.102": "team-x-mycluster-lb-10-40-0-100",
		"fd00::/126":              "team-x-mycluster-lb-fd00-0000-0000-0000-0000-0000-0000-0000",
	} {
		if got := plan.AdoptedName(tenant, rangeOf(t, text), nobody); got != want {
			t.Errorf("%s is adopted by %s, want %s", text, got, want)
		}
	}
	taken := func(name string) bool { return name == "team-x-mycluster-lb-10-40-0-100" }
	if got := plan.AdoptedName(tenant, rangeOf(t, "10.40.0.100"), taken); taken(got) || !strings.HasSuffix(got, "-lb-10-40-0-100") {
		t.Errorf("the second name is %s", got)
	}
}

func TestExplainManualRange(t *testing.T) {
	manual := tenant
	manual.ManualRange = rangeOf(t, "10.40.0.100-10.40.0.103")
	for addresses, want := range map[string]string{
		"10.40.0.100-10.40.0.103": "",
		"10.40.0.101":             "10.40.0.100, 10.40.0.102-10.40.0.103 are of spec.networking.loadBalancerPool, and not allocated to the tenant",
	} {
		if got := plan.ExplainManualRange(manual, plan.BlocksOf(tenant, []v1alpha1.IPAllocation{allocation(t, "x", "initial", addresses)})); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("with %s: %q, want %q", addresses, got, want)
		}
	}
	if got := plan.ExplainManualRange(manual, nil) + plan.ExplainManualRange(tenant, plan.BlocksOf(tenant, []v1alpha1.IPAllocation{allocation(t, "x", "initial", "10.40.0.1")})); got != "" {
		t.Errorf("%q for a tenant without blocks, or without a range", got)
	}
}

func TestAdoptParts(t *testing.T) {
	cases := map[string]struct {
		whole  string
		inUse  []string
		owned  []string // of others
		want   []string // allocated
		denied []string
	}{
		"free":                       {whole: "10.40.0.100-10.40.0.109", inUse: []string{"10.40.0.103"}, want: []string{"10.40.0.100-10.40.0.109"}},
		"unused, denied":             {whole: "10.40.0.100-10.40.0.109", owned: []string{"10.40.0.100"}, denied: []string{"10.40.0.100-10.40.0.109"}},
		"part in use free":           {whole: "10.40.0.100-10.40.0.109", inUse: []string{"10.40.0.103-10.40.0.104"}, owned: []string{"10.40.0.100"}, want: []string{"10.40.0.103-10.40.0.104"}},
		"part in use denied":         {whole: "10.40.0.100-10.40.0.109", inUse: []string{"10.40.0.100-10.40.0.104"}, owned: []string{"10.40.0.100"}, want: []string{"10.40.0.101", "10.40.0.102", "10.40.0.103-10.40.0.104"}, denied: []string{"10.40.0.100"}},
		"whole range in use, denied": {whole: "10.40.0.100-10.40.0.101", inUse: []string{"10.40.0.100-10.40.0.101"}, owned: []string{"10.40.0.101"}, want: []string{"10.40.0.100"}, denied: []string{"10.40.0.101"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owned, adoption := rangesOf(t, tc.owned...), plan.Adoption{Pool: "a", Range: rangeOf(t, tc.whole), InUse: rangesOf(t, tc.inUse...)}
			var got []allocator.Range
			denied, err := plan.AdoptParts(adoption, func(r allocator.Range) (bool, error) {
				if allocator.OverlapsAny(owned)([]allocator.Range{r}) {
					return false, nil
				}
				got = append(got, r)
				return true, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rangesOf(t, tc.want...), got, compareRanges); diff != "" {
				t.Errorf("allocated (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(rangesOf(t, tc.denied...), denied, compareRanges); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdoptParts_IsBounded(t *testing.T) {
	r := rangeOf(t, "10.40.0.0/16")
	calls := 0
	denied, err := plan.AdoptParts(plan.Adoption{Pool: "a", Range: r, InUse: []allocator.Range{r}}, func(allocator.Range) (bool, error) { calls++; return false, nil })
	if calls > 64 || allocator.Total(denied) != r.Size() || err != nil {
		t.Errorf("%d calls, %d addresses denied, %v", calls, allocator.Total(denied), err)
	}
	failure := errors.New("no connection")
	if _, err := plan.AdoptParts(plan.Adoption{Range: r}, func(allocator.Range) (bool, error) { return false, failure }); !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
}

// Only blocks that may get any address wait for others.
func TestDelay(t *testing.T) {
	pools := map[string]*v1alpha1.NetworkPool{
		"a": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.40.0.0/24}}`),
		"b": read[v1alpha1.NetworkPool](t, `{spec: {cidr: 10.41.0.0/24}}`),
	}
	other := tenant
	other.Name, other.ManualRange = "other", rangeOf(t, "10.40.0.0-10.40.0.2")
	p := policy(t, `{mode: ipam, poolRefs: [{name: a}, {name: b}]}`)
	p.Nodes = false
	promised, pending := plan.FindPromised(other, plan.MissingBlocks(other, p, nil, pools))
	if !pending {
		t.Fatal("the range of the other tenant is not promised")
	}
	if _, pending := plan.FindPromised(other, plan.MissingBlocks(other, p, plan.BlocksOf(tenant, []v1alpha1.IPAllocation{allocation(t, "x", "initial", "10.40.0.0-10.40.0.2")}), pools)); pending {
		t.Error("the range of the other tenant is promised after its allocation")
	}
	isBusy := func(pool string) string { return plan.ExplainPromised(pools[pool], []plan.Promised{promised}) }
	for name, tc := range map[string]struct {
		missing plan.MissingBlock
		want    string
	}{
		"any addresses of the pool":     {plan.MissingBlock{Kind: "nodes", Candidates: []plan.Candidate{{"a", 5}}}, "addresses for nodes are allocated when TenantCluster team-x/other has 10.40.0.0-10.40.0.2, which its spec.networking.loadBalancerPool names"},
		"any addresses of another pool": {plan.MissingBlock{Kind: "nodes", Candidates: []plan.Candidate{{"b", 5}}}, ""},
		"pinned range":                  {plan.MissingBlock{Kind: "loadbalancer", Pinned: &v1alpha1.PinnedIPRange{}, Candidates: []plan.Candidate{{"a", 5}}}, ""},
		"replacement":                   {plan.MissingBlock{Kind: "loadbalancer", Replaces: "x", Candidates: []plan.Candidate{{"a", 5}}}, ""},
		"other obstacle":                {plan.MissingBlock{Kind: "loadbalancer", Obstacle: plan.Obstacle{Reason: "x", Message: "x"}, Candidates: []plan.Candidate{{"a", 5}}}, "x"},
	} {
		got := plan.Delay([]plan.MissingBlock{tc.missing}, isBusy)[0]
		if got.Obstacle.Message != tc.want || got.Retry != (tc.want != "" && tc.want != "x") {
			t.Errorf("%s: obstacle %+v, retry %t; want %q", name, got.Obstacle, got.Retry, tc.want)
		}
	}
	after := plan.AfterAdoption([]plan.MissingBlock{{Kind: "nodes"}, {Kind: "loadbalancer"}, {Kind: "loadbalancer", Pinned: &v1alpha1.PinnedIPRange{}}})
	if after[0].Obstacle.Reason != "" || after[1].Obstacle.Reason != "Reconciling" || after[2].Obstacle.Reason != "" {
		t.Errorf("obstacles %+v", after)
	}
}
