package tenants_test

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
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

const elasticOne = `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic, growthIncrement: 1}}`

var compareRanges = cmpopts.EquateComparable(allocator.Range{})

// decide is a plan at noon. All ready ranges are in the tenant's pool.
func decide(t *testing.T, network string, have []v1alpha1.IPAllocation, v tenants.View) tenants.Plan {
	t.Helper()
	blocks := tenants.BlocksOf(tenant, have)
	if v.InPool == nil {
		for _, b := range blocks {
			if b.Ready {
				v.InPool = append(v.InPool, b.Range)
			}
		}
	}
	return tenants.Decide(tenant, policy(t, network), blocks, v, tenants.DefaultTiming, noon)
}

func TestGrowthIsWhatServicesWaitFor(t *testing.T) {
	first := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.0-10.40.0.1")
	used := served("10.40.0.0", "10.40.0.1")
	added := func(name, addresses string) v1alpha1.IPAllocation { return allocation(t, name, "growth", addresses) }
	refused := tenants.ServiceOf(balancer("refused"), ipv4, noon, true)
	type growth struct{ Need, Want, Short int32 }
	step := func(increment, quota string) string {
		return `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic, growthIncrement: ` + increment + `}, quotaPerTenant: {maxLoadBalancerIPs: ` + quota + `}}`
	}
	cases := map[string]struct {
		network  string
		have     []v1alpha1.IPAllocation
		services []tenants.Service
		notYet   bool // the tenant's pool has nothing yet
		want     growth
	}{
		"nobody waits, nothing is free": {have: []v1alpha1.IPAllocation{first}, services: used},
		"waits half a second":           {have: []v1alpha1.IPAllocation{first}, services: append(waiting(1, noon.Add(-time.Second/2)), used...)},
		"waits two minutes":             {have: []v1alpha1.IPAllocation{first}, services: append(waiting(1, ago(2)), used...), want: growth{1, 1, 0}},
		"MetalLB has refused it":        {have: []v1alpha1.IPAllocation{first}, services: append([]tenants.Service{refused}, used...), want: growth{1, 1, 0}},
		"a tenant without any block":    {services: waiting(1, ago(2)), want: growth{1, 1, 0}},
		"static":                        {network: `{mode: ipam, poolRefs: [{name: a}]}`, have: []v1alpha1.IPAllocation{first}, services: append(waiting(1, ago(2)), used...)},
		"cloud":                         {network: `{}`, services: waiting(1, ago(2))},

		"one, in steps of two":     {network: step("2", "99"), services: waiting(1, ago(2)), want: growth{1, 2, 0}},
		"five, in steps of two":    {network: step("2", "99"), services: waiting(5, ago(2)), want: growth{5, 5, 0}},
		"three, in steps of three": {network: step("3", "99"), services: waiting(3, ago(2)), want: growth{3, 3, 0}},
		"one, in steps of one":     {network: step("1", "99"), services: waiting(1, ago(2)), want: growth{1, 1, 0}},
		"one, and two behind it":   {network: step("1", "99"), services: append(waiting(1, ago(2)), waiting(2, ago(0.01))...), want: growth{1, 3, 0}},
		"two that just came":       {network: step("1", "99"), services: waiting(2, ago(0.01))},
		"those behind, by quota":   {network: step("1", "2"), services: append(waiting(1, ago(2)), waiting(2, ago(0.01))...), want: growth{1, 2, 0}},

		"quota allows a part":       {network: step("1", "4"), have: []v1alpha1.IPAllocation{first}, services: append(waiting(5, ago(2)), used...), want: growth{2, 2, 3}},
		"quota allows no full step": {network: step("4", "4"), have: []v1alpha1.IPAllocation{first}, services: append(waiting(1, ago(2)), used...), want: growth{1, 2, 0}},
		"quota is used up":          {network: step("1", "2"), have: []v1alpha1.IPAllocation{first}, services: append(waiting(1, ago(2)), used...), want: growth{0, 0, 1}},
		"quota was lowered":         {network: step("1", "1"), have: []v1alpha1.IPAllocation{first}, services: append(waiting(1, ago(2)), used...), want: growth{0, 0, 1}},

		"one on its way": {have: []v1alpha1.IPAllocation{first, func() v1alpha1.IPAllocation {
			a := added("team-x-mycluster-lb-1", "")
			a.Spec.Count = ptr.To[int32](1)
			return a
		}()}, services: append(waiting(1, ago(2)), used...)},
		"one there, not used yet":        {have: []v1alpha1.IPAllocation{first, added("team-x-mycluster-lb-1", "10.40.0.9")}, services: append(waiting(1, ago(2)), used...)},
		"one there, used":                {have: []v1alpha1.IPAllocation{first, added("team-x-mycluster-lb-1", "10.40.0.9")}, services: append(waiting(1, ago(2)), served("10.40.0.0", "10.40.0.1", "10.40.0.9")...), want: growth{1, 1, 0}},
		"one there, a part of it used":   {have: []v1alpha1.IPAllocation{first, added("team-x-mycluster-lb-1", "10.40.0.8-10.40.0.11")}, services: append(waiting(3, ago(2)), served("10.40.0.0", "10.40.0.1", "10.40.0.9")...)},
		"two wait, one there":            {have: []v1alpha1.IPAllocation{first, added("team-x-mycluster-lb-1", "10.40.0.9")}, services: append(waiting(2, ago(2)), used...), want: growth{1, 1, 0}},
		"more there than waits":          {have: []v1alpha1.IPAllocation{first, added("team-x-mycluster-lb-1", "10.40.0.8-10.40.0.15")}, services: append(waiting(2, ago(2)), used...)},
		"free first block, MetalLB slow": {have: []v1alpha1.IPAllocation{first}, services: waiting(2, ago(0.1))},
		"free first block, for one":      {have: []v1alpha1.IPAllocation{first}, services: waiting(3, ago(0.1)), want: growth{1, 1, 0}},
		"free first block, of no use":    {have: []v1alpha1.IPAllocation{first}, services: waiting(1, ago(2)), want: growth{1, 1, 0}},
		"first block not in use yet":     {have: []v1alpha1.IPAllocation{first}, services: waiting(1, ago(2)), notYet: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.network == "" {
				tc.network = elasticOne
			}
			v := tenants.View{Services: tc.services}
			if tc.notYet {
				v.InPool = []allocator.Range{}
			}
			got := decide(t, tc.network, tc.have, v)
			if diff := cmp.Diff(tc.want, growth{got.Need, got.Want, got.Short}); diff != "" {
				t.Errorf("growth (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyAServiceThatOurAddressesCanServeWaitsForOne(t *testing.T) {
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
		"with a name from elsewhere": {change: func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb"}}
		}},
		"going":                               {change: func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: noon} }},
		"of another class":                    {change: func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("cilium") }},
		"asks for an address":                 {change: func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.40.0.9" }},
		"asks for an address, annotation":     {change: note("metallb.io/loadBalancerIPs", "10.40.0.9")},
		"asks for an address, old annotation": {change: note("metallb.universe.tf/loadBalancerIPs", "10.40.0.9")},
		"asks for another pool":               {change: note("metallb.io/address-pool", "vip")},
		"asks for another pool, old":          {change: note("metallb.universe.tf/address-pool", "vip")},
		"asks for our pool":                   {change: note("metallb.io/address-pool", "default-pool"), want: true},
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
			if got := tenants.ServiceOf(s, ipv4, noon, false).Waits; got != tc.want {
				t.Errorf("want %t, got %t", tc.want, got)
			}
		})
	}
}

func TestServicesThatShareAnAddressWaitForOne(t *testing.T) {
	sharing := func(name, key string, port int32, policy corev1.ServiceExternalTrafficPolicy) tenants.Service {
		s := balancer(name)
		s.Annotations = map[string]string{"metallb.io/allow-shared-ip": key}
		s.Spec.Ports[0].Port, s.Spec.ExternalTrafficPolicy = port, policy
		s.Spec.Selector = map[string]string{"app": name}
		return tenants.ServiceOf(s, ipv4, ago(2), false)
	}
	const cluster, local = corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal
	both := func(name string) tenants.Service {
		s := balancer(name)
		s.Annotations = map[string]string{"metallb.io/allow-shared-ip": "k"}
		s.Spec.ExternalTrafficPolicy = cluster
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: 443})
		return tenants.ServiceOf(s, ipv4, ago(2), false)
	}
	// Each fits none of those before it, the first for a reason of its own, and is compared with all of them by nearly all its ports.
	hostile := func(n, ports int) (services []tenants.Service) {
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
			services = append(services, tenants.ServiceOf(s, ipv4, ago(2), false))
		}
		return services
	}
	cases := map[string]struct {
		services []tenants.Service
		want     int32
	}{
		"too many to compare":   {append(hostile(200, 100), sharing("a", "k", 80, cluster), sharing("b", "k", 443, cluster)), 203},
		"ports apart":           {[]tenants.Service{sharing("a", "k", 80, cluster), sharing("b", "k", 443, cluster), sharing("c", "k", 53, cluster)}, 1},
		"one port":              {[]tenants.Service{sharing("a", "k", 80, cluster), sharing("b", "k", 80, cluster)}, 2},
		"two keys":              {[]tenants.Service{sharing("a", "k", 80, cluster), sharing("b", "l", 443, cluster)}, 2},
		"no key":                {[]tenants.Service{sharing("a", "", 80, cluster), sharing("b", "", 443, cluster)}, 2},
		"the first that fits":   {[]tenants.Service{both("a"), sharing("b", "k", 80, cluster), sharing("c", "k", 443, cluster), sharing("d", "k", 80, cluster), both("e")}, 4},
		"beside one that fits":  {[]tenants.Service{sharing("a", "k", 80, cluster), both("b"), sharing("c", "k", 443, cluster), sharing("d", "k", 53, cluster)}, 2},
		"traffic stays, others": {[]tenants.Service{sharing("a", "k", 80, local), sharing("b", "k", 443, local)}, 2},
	}
	for name, tc := range cases {
		if got := decide(t, elasticOne, nil, tenants.View{Services: tc.services}).Need; got != tc.want {
			t.Errorf("%s: want %d, got %d", name, tc.want, got)
		}
	}
}

func TestABlockIsGivenBackOnlyAfterItWasIdleAndHasLeftThePool(t *testing.T) {
	const name = "team-x-mycluster-lb-1"
	first := allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.0-10.40.0.1")
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
	full := served("10.40.0.0", "10.40.0.1")
	type shrink struct{ Start, Stop, Withdrawn, Release, Discard []string }
	mine := []string{name}
	cases := map[string]struct {
		block    v1alpha1.IPAllocation
		services []tenants.Service
		gone     time.Time
		want     shrink
	}{
		"used":                               {block: idle(time.Time{}), services: served("10.40.0.8")},
		"used, its first address":            {block: idle(ago(60)), services: served("10.40.0.8"), want: shrink{Stop: mine}},
		"used, its last address":             {block: idle(ago(60)), services: served("10.40.0.9"), want: shrink{Stop: mine}},
		"another address used":               {block: idle(ago(60)), services: served("10.40.0.10"), want: shrink{Withdrawn: mine}},
		"asked for":                          {block: idle(ago(60)), services: []tenants.Service{{Key: "a/b", Asks: served("10.40.0.8")[0].Has}}, want: shrink{Stop: mine}},
		"not used any more":                  {block: idle(time.Time{}), want: shrink{Start: mine}},
		"idle for five minutes":              {block: idle(ago(5))},
		"idle for ten minutes":               {block: idle(ago(10)), want: shrink{Withdrawn: mine}},
		"and out of the pool":                {block: idle(ago(10)), gone: noon, want: shrink{Withdrawn: mine}},
		"and out of the pool for long":       {block: idle(ago(10)), gone: ago(1), want: shrink{Withdrawn: mine, Release: mine}},
		"out of the pool, used all the same": {block: idle(ago(10)), gone: ago(1), services: served("10.40.0.8"), want: shrink{Stop: mine}},
		"idle, and a Service waits":          {block: idle(ago(60)), gone: ago(1), services: append(waiting(1, noon), full...), want: shrink{Stop: mine}},
		"idle, a Service waits that the first block will serve": {block: idle(ago(60)), gone: ago(1), services: append(waiting(1, noon), full[:1]...), want: shrink{Withdrawn: mine, Release: mine}},
		"first block": {block: idle(ago(60), func(a *v1alpha1.IPAllocation) { a.Labels[v1alpha1.LabelAllocationRole] = "initial" })},
		"waits for range": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhasePending
		})},
		"pinned":                  {block: idle(time.Time{}, pinned)},
		"pinned, clock of before": {block: idle(ago(60), pinned), gone: ago(1), want: shrink{Stop: mine}},
		"restored":                {block: idle(time.Time{}, restored), want: shrink{Start: mine}},
		"restored long ago":       {block: idle(ago(60), restored), gone: ago(1), want: shrink{Withdrawn: mine, Release: mine}},
		"kept":                    {block: idle(ago(60), kept), gone: ago(1), want: shrink{Stop: mine}},
		"going":                   {block: idle(ago(60), func(a *v1alpha1.IPAllocation) { a.DeletionTimestamp = &metav1.Time{Time: noon} }), gone: ago(1)},
		"failed": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhaseFailed
		}), want: shrink{Discard: mine}},
		"failed a moment ago": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhaseFailed
			a.CreationTimestamp = metav1.NewTime(noon.Add(-tenants.ReplaceAfter + time.Second))
		})},
		"failed, kept": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhaseFailed
			kept(a)
		})},
		"failed, made by hand": {block: idle(time.Time{}, func(a *v1alpha1.IPAllocation) {
			a.Spec.PinnedRange, a.Status.Conditions, a.Status.Phase = nil, nil, v1alpha1.PhaseFailed
			delete(a.Labels, v1alpha1.LabelManagedBy)
		})},
	}
	for label, tc := range cases {
		t.Run(label, func(t *testing.T) {
			for _, have := range [][]v1alpha1.IPAllocation{{first, tc.block}, {tc.block, first}} {
				v := tenants.View{Services: tc.services}
				if !tc.gone.IsZero() {
					v.GoneSince = map[string]time.Time{name: tc.gone}
				}
				p := decide(t, elasticOne, have, v)
				if diff := cmp.Diff(tc.want, shrink{p.StartClock, p.StopClock, p.Withdrawn, p.Release, p.Discard}); diff != "" {
					t.Errorf("decision (-want +got):\n%s", diff)
				}
				if p.Need != 0 {
					t.Errorf("%d addresses are asked for", p.Need)
				}
				withdrawn := slices.Contains(p.Withdrawn, name)
				if held := slices.Contains(p.Addresses, rangeOf(t, "10.40.0.8-10.40.0.9")); held && withdrawn {
					t.Error("the range is withdrawn and in the pool")
				}
			}
		})
	}
}

func TestAStaticTenantGivesNothingBack(t *testing.T) {
	a := allocation(t, "team-x-mycluster-lb-1", "growth", "10.40.0.8")
	a.Annotations[v1alpha1.AnnotationIdleSince] = ago(60).Format(time.RFC3339)
	p := decide(t, `{mode: ipam, poolRefs: [{name: a}]}`, []v1alpha1.IPAllocation{a}, tenants.View{})
	if diff := cmp.Diff(tenants.Plan{Addresses: []allocator.Range{rangeOf(t, "10.40.0.8")}}, p, compareRanges); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestAQuotaThatIsUsedUpStopsNothingElse(t *testing.T) {
	used, back := allocation(t, "team-x-mycluster-lb-1", "growth", "10.40.0.8"), allocation(t, "team-x-mycluster-lb-2", "growth", "10.40.0.12")
	for _, a := range []*v1alpha1.IPAllocation{&used, &back} {
		a.Annotations[v1alpha1.AnnotationIdleSince] = ago(5).Format(time.RFC3339)
	}
	failed := allocation(t, "team-x-mycluster-lb-3", "growth", "")
	failed.Status.Phase = v1alpha1.PhaseFailed
	p := decide(t, `{mode: ipam, poolRefs: [{name: a}], loadBalancer: {allocationMode: elastic}, quotaPerTenant: {maxLoadBalancerIPs: 2}}`,
		[]v1alpha1.IPAllocation{used, back, failed}, tenants.View{Services: append(waiting(3, ago(2)), served("10.40.0.8")...)})
	want := tenants.Plan{
		Short:     2,
		Addresses: []allocator.Range{rangeOf(t, "10.40.0.8"), rangeOf(t, "10.40.0.12")},
		StopClock: []string{"team-x-mycluster-lb-1", "team-x-mycluster-lb-2"},
		Discard:   []string{"team-x-mycluster-lb-3"},
	}
	if diff := cmp.Diff(want, p, compareRanges); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestWhatMetalLBHasOfATenant(t *testing.T) {
	byHand := tenant
	byHand.ByHand = rangeOf(t, "10.9.0.1-10.9.0.9")
	ready := func(name, addresses string) v1alpha1.IPAllocation { return allocation(t, name, "growth", addresses) }
	cases := map[string]struct {
		tenant tenants.Tenant
		have   []v1alpha1.IPAllocation
		want   []string
	}{
		"nothing":                          {tenant: tenant},
		"one address":                      {tenant: tenant, have: []v1alpha1.IPAllocation{ready("a", "10.40.0.9")}, want: []string{"10.40.0.9"}},
		"by address, each block by itself": {tenant: tenant, have: []v1alpha1.IPAllocation{ready("a", "10.40.0.100-10.40.0.101"), ready("b", "10.40.0.9"), ready("c", "10.40.0.10")}, want: []string{"10.40.0.9", "10.40.0.10", "10.40.0.100-10.40.0.101"}},
		"not nodes": {tenant: tenant, have: []v1alpha1.IPAllocation{func() v1alpha1.IPAllocation {
			a := ready("a", "10.40.0.9")
			a.Spec.Type = v1alpha1.TypeNodes
			return a
		}()}},
		"not before it is ready": {tenant: tenant, have: []v1alpha1.IPAllocation{func() v1alpha1.IPAllocation {
			a := ready("a", "10.40.0.9")
			a.Status.Conditions = nil
			return a
		}()}},
		"not what is being deleted": {tenant: tenant, have: []v1alpha1.IPAllocation{func() v1alpha1.IPAllocation {
			a := ready("a", "10.40.0.9")
			a.DeletionTimestamp = &metav1.Time{Time: noon}
			return a
		}()}},
		"an overlap once":                {tenant: tenant, have: []v1alpha1.IPAllocation{ready("a", "10.40.0.8/29"), ready("b", "10.40.0.9")}, want: []string{"10.40.0.8/29"}},
		"by hand":                        {tenant: byHand, want: []string{"10.9.0.1-10.9.0.9"}},
		"a block rather than by hand":    {tenant: byHand, have: []v1alpha1.IPAllocation{ready("a", "10.40.0.9")}, want: []string{"10.40.0.9"}},
		"by hand until a block is ready": {tenant: byHand, have: []v1alpha1.IPAllocation{ready("a", "")}, want: []string{"10.9.0.1-10.9.0.9"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, network := range []string{elasticOne, `{mode: ipam, poolRefs: [{name: a}]}`} {
				var want []allocator.Range
				for _, text := range tc.want {
					want = append(want, rangeOf(t, text))
				}
				got := tenants.Decide(tc.tenant, policy(t, network), tenants.BlocksOf(tc.tenant, tc.have), tenants.View{}, tenants.DefaultTiming, noon)
				if diff := cmp.Diff(want, got.Addresses, compareRanges); diff != "" {
					t.Errorf("addresses (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestServicesAreCounted(t *testing.T) {
	platform := balancer("traefik")
	platform.Labels = map[string]string{"butler.butlerlabs.dev/platform-lb": "true"}
	platform.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.40.0.1"}}
	inside := balancer("inside")
	inside.Spec.Type = corev1.ServiceTypeClusterIP
	other := balancer("other")
	other.Spec.LoadBalancerClass = ptr.To("cilium")
	var services []tenants.Service
	for _, s := range []*corev1.Service{platform, inside, other, balancer("waits")} {
		services = append(services, tenants.ServiceOf(s, ipv4, noon, false))
	}
	want := tenants.Inventory{Platform: 1, Tenant: 2, Waiting: 1, Unserved: 1}
	if diff := cmp.Diff(want, tenants.InventoryOf(append(services, served("10.40.0.2", "10.40.0.3")...))); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
