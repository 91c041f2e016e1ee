package plan_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

const elasticOne = `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic, growthIncrement: 1}}`

var compareRanges = cmpopts.EquateComparable(allocator.Range{})

// decide returns the decision at noon. Without InPool, all ready ranges are in the
// tenant's pool.
func decide(t *testing.T, network string, have []v1alpha1.IPAllocation, v plan.View) plan.Decision {
	t.Helper()
	blocks := plan.BlocksOf(tenant, have)
	if v.InPool == nil {
		for _, b := range blocks {
			if b.Ready {
				v.InPool = append(v.InPool, b.Range)
			}
		}
	}
	return plan.Decide(tenant, policy(t, network), blocks, v, plan.DefaultTiming, noon)
}

func TestDecide_Growth(t *testing.T) {
	initial := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.0-10.40.0.1")
	used := served("10.40.0.0", "10.40.0.1")
	growthBlock := func(name, addresses string) v1alpha1.IPAllocation { return allocation(t, name, "growth", addresses) }
	refused := plan.ServiceOf(balancer("refused"), ipv4, noon, true)
	type growth struct{ Need, Want, OverQuota int32 }
	step := func(increment, quota string) string {
		return `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic, growthIncrement: ` + increment + `}, quotaPerTenant: {maxLoadBalancerIPs: ` + quota + `}}`
	}
	cases := map[string]struct {
		network   string
		have      []v1alpha1.IPAllocation
		services  []plan.Service
		emptyPool bool // of the tenant
		want      growth
	}{
		"no Service waits":           {have: []v1alpha1.IPAllocation{initial}, services: used},
		"waits half a second":        {have: []v1alpha1.IPAllocation{initial}, services: append(waiting(1, noon.Add(-time.Second/2)), used...)},
		"waits two minutes":          {have: []v1alpha1.IPAllocation{initial}, services: append(waiting(1, ago(2)), used...), want: growth{1, 1, 0}},
		"refused by MetalLB":         {have: []v1alpha1.IPAllocation{initial}, services: append([]plan.Service{refused}, used...), want: growth{1, 1, 0}},
		"a tenant without any block": {services: waiting(1, ago(2)), want: growth{1, 1, 0}},
		"static":                     {network: `{mode: ipam, poolRefs: [{name: a}]}`, have: []v1alpha1.IPAllocation{initial}, services: append(waiting(1, ago(2)), used...)},
		"cloud":                      {network: `{}`, services: waiting(1, ago(2))},

		"one, in steps of two":                 {network: step("2", "99"), services: waiting(1, ago(2)), want: growth{1, 2, 0}},
		"five, in steps of two":                {network: step("2", "99"), services: waiting(5, ago(2)), want: growth{5, 5, 0}},
		"three, in steps of three":             {network: step("3", "99"), services: waiting(3, ago(2)), want: growth{3, 3, 0}},
		"one, in steps of one":                 {network: step("1", "99"), services: waiting(1, ago(2)), want: growth{1, 1, 0}},
		"one pending, two more wait":           {network: step("1", "99"), services: append(waiting(1, ago(2)), waiting(2, ago(0.01))...), want: growth{1, 3, 0}},
		"two new Services":                     {network: step("1", "99"), services: waiting(2, ago(0.01))},
		"one pending, quota limits the others": {network: step("1", "2"), services: append(waiting(1, ago(2)), waiting(2, ago(0.01))...), want: growth{1, 2, 0}},

		"quota allows a part":       {network: step("1", "4"), have: []v1alpha1.IPAllocation{initial}, services: append(waiting(5, ago(2)), used...), want: growth{2, 2, 3}},
		"quota allows no full step": {network: step("4", "4"), have: []v1alpha1.IPAllocation{initial}, services: append(waiting(1, ago(2)), used...), want: growth{1, 2, 0}},
		"quota is used up":          {network: step("1", "2"), have: []v1alpha1.IPAllocation{initial}, services: append(waiting(1, ago(2)), used...), want: growth{0, 0, 1}},
		"quota was lowered":         {network: step("1", "1"), have: []v1alpha1.IPAllocation{initial}, services: append(waiting(1, ago(2)), used...), want: growth{0, 0, 1}},

		"growth block without a range": {have: []v1alpha1.IPAllocation{initial, func() v1alpha1.IPAllocation {
			a := growthBlock("team-x-mycluster-lb-1", "")
			a.Spec.Count = ptr.To[int32](1)
			return a
		}()}, services: append(waiting(1, ago(2)), used...)},
		"growth block, not used yet":          {have: []v1alpha1.IPAllocation{initial, growthBlock("team-x-mycluster-lb-1", "10.40.0.9")}, services: append(waiting(1, ago(2)), used...)},
		"growth block, used":                  {have: []v1alpha1.IPAllocation{initial, growthBlock("team-x-mycluster-lb-1", "10.40.0.9")}, services: append(waiting(1, ago(2)), served("10.40.0.0", "10.40.0.1", "10.40.0.9")...), want: growth{1, 1, 0}},
		"growth block, partly used":           {have: []v1alpha1.IPAllocation{initial, growthBlock("team-x-mycluster-lb-1", "10.40.0.8-10.40.0.11")}, services: append(waiting(3, ago(2)), served("10.40.0.0", "10.40.0.1", "10.40.0.9")...)},
		"two wait, one address free":          {have: []v1alpha1.IPAllocation{initial, growthBlock("team-x-mycluster-lb-1", "10.40.0.9")}, services: append(waiting(2, ago(2)), used...), want: growth{1, 1, 0}},
		"more free than needed":               {have: []v1alpha1.IPAllocation{initial, growthBlock("team-x-mycluster-lb-1", "10.40.0.8-10.40.0.15")}, services: append(waiting(2, ago(2)), used...)},
		"free initial block, MetalLB is slow": {have: []v1alpha1.IPAllocation{initial}, services: waiting(2, ago(0.1))},
		"free initial block, too small":       {have: []v1alpha1.IPAllocation{initial}, services: waiting(3, ago(0.1)), want: growth{1, 1, 0}},
		"free initial block, not assigned":    {have: []v1alpha1.IPAllocation{initial}, services: waiting(1, ago(2)), want: growth{1, 1, 0}},
		"initial block not in the pool yet":   {have: []v1alpha1.IPAllocation{initial}, services: waiting(1, ago(2)), emptyPool: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.network == "" {
				tc.network = elasticOne
			}
			v := plan.View{Services: tc.services}
			if tc.emptyPool {
				v.InPool = []allocator.Range{}
			}
			got := decide(t, tc.network, tc.have, v)
			if diff := cmp.Diff(tc.want, growth{got.Need, got.Want, got.OverQuota}); diff != "" {
				t.Errorf("growth (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceOf_Waiting(t *testing.T) {
	note := func(key, value string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Annotations = map[string]string{key: value} }
	}
	cases := map[string]struct {
		change func(*corev1.Service)
		want   bool
	}{
		"plain":           {change: func(*corev1.Service) {}, want: true},
		"of another type": {change: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }},
		"with an address": {change: func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.40.0.9"}}
		}},
		"with a host name": {change: func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb"}}
		}},
		"being deleted":                       {change: func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: noon} }},
		"with a class":                        {change: func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("cilium") }},
		"requests an address":                 {change: func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.40.0.9" }},
		"requests an address, annotation":     {change: note("metallb.io/loadBalancerIPs", "10.40.0.9")},
		"requests an address, old annotation": {change: note("metallb.universe.tf/loadBalancerIPs", "10.40.0.9")},
		"requests another pool":               {change: note("metallb.io/address-pool", "vip")},
		"requests another pool, old":          {change: note("metallb.universe.tf/address-pool", "vip")},
		"requests the pool of IPAM":           {change: note("metallb.io/address-pool", "default-pool"), want: true},
		"IPv6":                                {change: func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }},
		"both families, required":             {change: func(s *corev1.Service) { s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack) }},
		"both families, preferred": {change: func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
		}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := balancer("web")
			tc.change(s)
			if got := plan.ServiceOf(s, ipv4, noon, false).Waiting; got != tc.want {
				t.Errorf("want %t, got %t", tc.want, got)
			}
		})
	}
}

func TestDecide_SharedAddresses(t *testing.T) {
	sharing := func(name, key string, port int32, policy corev1.ServiceExternalTrafficPolicy) plan.Service {
		s := balancer(name)
		s.Annotations = map[string]string{"metallb.io/allow-shared-ip": key}
		s.Spec.Ports[0].Port, s.Spec.ExternalTrafficPolicy = port, policy
		s.Spec.Selector = map[string]string{"app": name}
		return plan.ServiceOf(s, ipv4, ago(2), false)
	}
	const cluster, local = corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal
	both := func(name string) plan.Service {
		s := balancer(name)
		s.Annotations = map[string]string{"metallb.io/allow-shared-ip": "k"}
		s.Spec.ExternalTrafficPolicy = cluster
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: 443})
		return plan.ServiceOf(s, ipv4, ago(2), false)
	}
	// hostile returns Services of which no two can share an address. Each is compared
	// with all earlier ones by nearly all of its ports.
	hostile := func(n, ports int) (services []plan.Service) {
		tcp := func(port int) corev1.ServicePort {
			return corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: int32(port)}
		}
		first := balancer("hostile")
		for i := range n {
			first.Spec.Ports = append(first.Spec.Ports, tcp(2+i))
		}
		all := []*corev1.Service{first}
		for i := range n {
			s := balancer("hostile-" + strconv.Itoa(i))
			s.Spec.Ports = nil
			for p := range ports {
				s.Spec.Ports = append(s.Spec.Ports, tcp(2+n+i*ports+p))
			}
			s.Spec.Ports = append(s.Spec.Ports, tcp(2+i), tcp(1))
			all = append(all, s)
		}
		for _, s := range all {
			s.Annotations = map[string]string{"metallb.io/allow-shared-ip": "h"}
			services = append(services, plan.ServiceOf(s, ipv4, ago(2), false))
		}
		return services
	}
	cases := map[string]struct {
		services []plan.Service
		want     int32
	}{
		"too many to compare":           {append(hostile(200, 100), sharing("a", "k", 80, cluster), sharing("b", "k", 443, cluster)), 203},
		"different ports":               {[]plan.Service{sharing("a", "k", 80, cluster), sharing("b", "k", 443, cluster), sharing("c", "k", 53, cluster)}, 1},
		"one port":                      {[]plan.Service{sharing("a", "k", 80, cluster), sharing("b", "k", 80, cluster)}, 2},
		"two keys":                      {[]plan.Service{sharing("a", "k", 80, cluster), sharing("b", "l", 443, cluster)}, 2},
		"no key":                        {[]plan.Service{sharing("a", "", 80, cluster), sharing("b", "", 443, cluster)}, 2},
		"first address with free ports": {[]plan.Service{both("a"), sharing("b", "k", 80, cluster), sharing("c", "k", 443, cluster), sharing("d", "k", 80, cluster), both("e")}, 4},
		"second address":                {[]plan.Service{sharing("a", "k", 80, cluster), both("b"), sharing("c", "k", 443, cluster), sharing("d", "k", 53, cluster)}, 2},
		"policy Local, other selectors": {[]plan.Service{sharing("a", "k", 80, local), sharing("b", "k", 443, local)}, 2},
	}
	for name, tc := range cases {
		if got := decide(t, elasticOne, nil, plan.View{Services: tc.services}).Need; got != tc.want {
			t.Errorf("%s: want %d, got %d", name, tc.want, got)
		}
	}
}

func TestDecide_Release(t *testing.T) {
	const name = "team-x-mycluster-lb-1"
	initial := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.0-10.40.0.1")
	idle := func(since time.Time, change ...func(*v1alpha1.IPAllocation)) v1alpha1.IPAllocation {
		a := allocation(t, name, "growth", "10.40.0.8-10.40.0.9")
		a.CreationTimestamp = metav1.NewTime(ago(60))
		if !since.IsZero() {
			a.Annotations[v1alpha1.AnnotationIdleSince] = since.Format(time.RFC3339)
		}
		for _, c := range change {
			c(&a)
		}
		return a
	}
	allUsed := served("10.40.0.0", "10.40.0.1")
	type release struct{ BecameIdle, BecameUsed, Withdrawn, Release, Discard []string }
	names := []string{name}
	cases := map[string]struct {
		block        v1alpha1.IPAllocation
		services     []plan.Service
		missingSince time.Time
		want         release
	}{
		"used":                                             {block: idle(time.Time{}), services: served("10.40.0.8")},
		"used, its first address":                          {block: idle(ago(60)), services: served("10.40.0.8"), want: release{BecameUsed: names}},
		"used, its last address":                           {block: idle(ago(60)), services: served("10.40.0.9"), want: release{BecameUsed: names}},
		"another address used":                             {block: idle(ago(60)), services: served("10.40.0.10"), want: release{Withdrawn: names}},
		"requested":                                        {block: idle(ago(60)), services: []plan.Service{{Key: "a/b", Requested: served("10.40.0.8")[0].Addresses}}, want: release{BecameUsed: names}},
		"no longer used":                                   {block: idle(time.Time{}), want: release{BecameIdle: names}},
		"idle for five minutes":                            {block: idle(ago(5))},
		"idle for ten minutes":                             {block: idle(ago(10)), want: release{Withdrawn: names}},
		"absent from the pool":                             {block: idle(ago(10)), missingSince: noon, want: release{Withdrawn: names}},
		"absent from the pool for a minute":                {block: idle(ago(10)), missingSince: ago(1), want: release{Withdrawn: names, Release: names}},
		"absent from the pool, used":                       {block: idle(ago(10)), missingSince: ago(1), services: served("10.40.0.8"), want: release{BecameUsed: names}},
		"idle, and a Service waits":                        {block: idle(ago(60)), missingSince: ago(1), services: append(waiting(1, noon), allUsed...), want: release{BecameUsed: names}},
		"idle, the initial block serves a waiting Service": {block: idle(ago(60)), missingSince: ago(1), services: append(waiting(1, noon), allUsed[:1]...), want: release{Withdrawn: names, Release: names}},
		"initial block":                                    {block: idle(ago(60), func(a *v1alpha1.IPAllocation) { a.Labels[v1alpha1.LabelAllocationRole] = "initial" })},
		"without a range": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhasePending
		})},
		"pinned":                            {block: idle(time.Time{}, pinned)},
		"pinned, with a recorded idle time": {block: idle(ago(60), pinned), missingSince: ago(1), want: release{BecameUsed: names}},
		"restored":                          {block: idle(time.Time{}, restored), want: release{BecameIdle: names}},
		"restored long ago":                 {block: idle(ago(60), restored), missingSince: ago(1), want: release{Withdrawn: names, Release: names}},
		"kept":                              {block: idle(ago(60), kept), missingSince: ago(1), want: release{BecameUsed: names}},
		"being deleted":                     {block: idle(ago(60), func(a *v1alpha1.IPAllocation) { a.DeletionTimestamp = &metav1.Time{Time: noon} }), missingSince: ago(1)},
		"failed": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhaseFailed
		}), want: release{Discard: names}},
		"failed a moment ago": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhaseFailed
			a.CreationTimestamp = metav1.NewTime(noon.Add(-plan.ReplaceAfter + time.Second))
		})},
		"failed, kept": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhaseFailed
			kept(a)
		})},
		"failed, of another author": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhaseFailed
			delete(a.Labels, v1alpha1.LabelManagedBy)
		})},
	}
	for label, tc := range cases {
		t.Run(label, func(t *testing.T) {
			for _, have := range [][]v1alpha1.IPAllocation{{initial, tc.block}, {tc.block, initial}} {
				v := plan.View{Services: tc.services}
				if !tc.missingSince.IsZero() {
					v.MissingSince = map[string]time.Time{name: tc.missingSince}
				}
				p := decide(t, elasticOne, have, v)
				if diff := cmp.Diff(tc.want, release{p.BecameIdle, p.BecameUsed, p.Withdrawn, p.Release, p.Discard}); diff != "" {
					t.Errorf("decision (-want +got):\n%s", diff)
				}
				if p.Need != 0 {
					t.Errorf("need %d addresses", p.Need)
				}
				withdrawn := slices.Contains(p.Withdrawn, name)
				if offered := slices.Contains(p.Offered, rangeOf(t, "10.40.0.8-10.40.0.9")); offered && withdrawn {
					t.Error("the range is withdrawn and offered")
				}
			}
		})
	}
}

func TestDecide_StaticTenantReleasesNothing(t *testing.T) {
	a := allocation(t, "team-x-mycluster-lb-1", "growth", "10.40.0.8")
	a.Annotations[v1alpha1.AnnotationIdleSince] = ago(60).Format(time.RFC3339)
	p := decide(t, `{mode: ipam, poolRefs: [{name: a}]}`, []v1alpha1.IPAllocation{a}, plan.View{})
	if diff := cmp.Diff(plan.Decision{Offered: []allocator.Range{rangeOf(t, "10.40.0.8")}}, p, compareRanges); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

func TestDecide_ExhaustedQuotaStopsOnlyGrowth(t *testing.T) {
	used, reserved := allocation(t, "team-x-mycluster-lb-1", "growth", "10.40.0.8"), allocation(t, "team-x-mycluster-lb-2", "growth", "10.40.0.12")
	for _, a := range []*v1alpha1.IPAllocation{&used, &reserved} {
		a.Annotations[v1alpha1.AnnotationIdleSince] = ago(5).Format(time.RFC3339)
	}
	failed := allocation(t, "team-x-mycluster-lb-3", "growth", "")
	failed.Status.Phase = v1alpha1.PhaseFailed
	p := decide(t, `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic}, quotaPerTenant: {maxLoadBalancerIPs: 2}}`,
		[]v1alpha1.IPAllocation{used, reserved, failed}, plan.View{Services: append(waiting(3, ago(2)), served("10.40.0.8")...)})
	want := plan.Decision{
		OverQuota:  2,
		Offered:    []allocator.Range{rangeOf(t, "10.40.0.8"), rangeOf(t, "10.40.0.12")},
		BecameUsed: []string{"team-x-mycluster-lb-1", "team-x-mycluster-lb-2"},
		Discard:    []string{"team-x-mycluster-lb-3"},
	}
	if diff := cmp.Diff(want, p, compareRanges); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

func TestDecide_Offered(t *testing.T) {
	manual := tenant
	manual.ManualRange = rangeOf(t, "10.9.0.1-10.9.0.9")
	ready := func(name, addresses string) v1alpha1.IPAllocation { return allocation(t, name, "growth", addresses) }
	cases := map[string]struct {
		tenant plan.Tenant
		have   []v1alpha1.IPAllocation
		want   []string
	}{
		"nothing":                     {tenant: tenant},
		"one address":                 {tenant: tenant, have: []v1alpha1.IPAllocation{ready("a", "10.40.0.9")}, want: []string{"10.40.0.9"}},
		"sorted, one range per block": {tenant: tenant, have: []v1alpha1.IPAllocation{ready("a", "10.40.0.100-10.40.0.101"), ready("b", "10.40.0.9"), ready("c", "10.40.0.10")}, want: []string{"10.40.0.9", "10.40.0.10", "10.40.0.100-10.40.0.101"}},
		"node block": {tenant: tenant, have: []v1alpha1.IPAllocation{func() v1alpha1.IPAllocation {
			a := ready("a", "10.40.0.9")
			a.Spec.Type = v1alpha1.TypeNodes
			return a
		}()}},
		"block not ready": {tenant: tenant, have: []v1alpha1.IPAllocation{func() v1alpha1.IPAllocation {
			a := ready("a", "10.40.0.9")
			a.Status.Conditions = nil
			return a
		}()}},
		"block being deleted": {tenant: tenant, have: []v1alpha1.IPAllocation{func() v1alpha1.IPAllocation {
			a := ready("a", "10.40.0.9")
			a.DeletionTimestamp = &metav1.Time{Time: noon}
			return a
		}()}},
		"overlapping blocks":                  {tenant: tenant, have: []v1alpha1.IPAllocation{ready("a", "10.40.0.8/29"), ready("b", "10.40.0.9")}, want: []string{"10.40.0.8/29"}},
		"manual range":                        {tenant: manual, want: []string{"10.9.0.1-10.9.0.9"}},
		"block and manual range":              {tenant: manual, have: []v1alpha1.IPAllocation{ready("a", "10.40.0.9")}, want: []string{"10.40.0.9"}},
		"manual range until a block is ready": {tenant: manual, have: []v1alpha1.IPAllocation{ready("a", "")}, want: []string{"10.9.0.1-10.9.0.9"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, network := range []string{elasticOne, `{mode: ipam, poolRefs: [{name: a}]}`} {
				var want []allocator.Range
				for _, text := range tc.want {
					want = append(want, rangeOf(t, text))
				}
				got := plan.Decide(tc.tenant, policy(t, network), plan.BlocksOf(tc.tenant, tc.have), plan.View{}, plan.DefaultTiming, noon)
				if diff := cmp.Diff(want, got.Offered, compareRanges); diff != "" {
					t.Errorf("offered (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestCountServices(t *testing.T) {
	platform := balancer("traefik")
	platform.Labels = map[string]string{"butler.butlerlabs.dev/platform-lb": "true"}
	platform.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.40.0.1"}}
	clusterIP := balancer("cluster-ip")
	clusterIP.Spec.Type = corev1.ServiceTypeClusterIP
	other := balancer("other")
	other.Spec.LoadBalancerClass = ptr.To("cilium")
	var services []plan.Service
	for _, s := range []*corev1.Service{platform, clusterIP, other, balancer("waits")} {
		services = append(services, plan.ServiceOf(s, ipv4, noon, false))
	}
	want := plan.Inventory{Platform: 1, Tenant: 2, Waiting: 1, Unserved: 1}
	if diff := cmp.Diff(want, plan.CountServices(append(services, served("10.40.0.2", "10.40.0.3")...))); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
