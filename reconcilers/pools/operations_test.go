package pools

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

// The operations guide's example: 32 addresses, elastic, two to begin with and one more
// at a time. Nodes get addresses from another pool: otherwise there would be room for
// four tenants only.
func TestOperationsGuide_Example(t *testing.T) {
	p := &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: "lb"}, Spec: v1alpha1.NetworkPoolSpec{
		CIDR: "10.92.90.0/23", TenantAllocation: &v1alpha1.TenantAllocation{Ranges: []v1alpha1.IPRange{{Start: "10.92.90.32", End: "10.92.90.63"}}},
	}}
	window, err := allocator.ParseRange("10.92.90.32/27")
	if err != nil {
		t.Fatal(err)
	}
	pool := allocator.NewSpace().SetPool("lb", []allocator.Range{window}, nil)
	two, one := int32(2), int32(1)
	policy := plan.PolicyOf(&v1alpha1.ProviderConfig{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationNodeAddresses: v1alpha1.NodeAddressesExternal}},
		Spec: v1alpha1.ProviderConfigSpec{Network: &v1alpha1.ProviderNetwork{
			Mode: v1alpha1.NetworkModeIPAM, PoolRefs: []v1alpha1.PoolReference{{Name: "lb"}},
			LoadBalancer: &v1alpha1.ProviderLoadBalancer{AllocationMode: v1alpha1.LBAllocationElastic, InitialPoolSize: &two, GrowthIncrement: &one},
		}},
	})
	pools := map[string]*v1alpha1.NetworkPool{"lb": p}
	usage := ledger.Usage{}
	give := func(try plan.Candidate) (bool, error) {
		_, err := pool.Allocate(int64(try.Count), allocator.BestFit, allocator.OwnerID(usage.Claims+1))
		if errors.Is(err, allocator.ErrExhausted) {
			return false, nil
		}
		usage = ledger.Usage{Stats: pool.Stats(), Claims: usage.Claims + 1}
		return err == nil, err
	}
	start := func(tenant plan.Tenant) bool {
		wishes := plan.MissingBlocks(tenant, policy, nil, pools)
		if len(wishes) != 1 {
			t.Fatalf("want a block for load balancers, got %+v", wishes)
		}
		_, ok, err := plan.AllocateFirst(wishes[0].Candidates, give)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}

	type row struct {
		Tenants   int
		Allocated int64
		Percent   string
		Tiers     []string
		Events    []string
	}
	var got []row
	var events []string
	for n := 1; n <= 16; n++ {
		if !start(plan.Tenant{Namespace: "team", Name: fmt.Sprint("t", n), Ingress: true}) {
			t.Fatalf("no room for tenant %d", n)
		}
		before := p.Status.Conditions
		p.Status = *poolStatus(p, usage, 0, nil)
		for _, c := range findCrossings(before, p.Status.Conditions) {
			events = append(events, c.reason)
		}
		switch n {
		case 8, 12, 14, 16:
			r := row{Tenants: n, Allocated: usage.Allocated, Percent: fmt.Sprintf("%d%%", 100*usage.Allocated/usage.Total), Events: events}
			for _, tier := range tiers {
				if meta.IsStatusConditionTrue(p.Status.Conditions, tier.condition) {
					r.Tiers = append(r.Tiers, tier.condition)
				}
			}
			got, events = append(got, r), nil
		}
		if n == 8 {
			capacity, _ := plan.EstimateCapacity(policy, pools, map[string][]allocator.Range{"lb": pool.Free()})
			if want := (v1alpha1.ProviderCapacity{AvailableIPs: 16, EstimatedTenants: 8}); capacity != want {
				t.Errorf("capacity with 8 tenants: want %+v, got %+v", want, capacity)
			}
		}
	}
	want := []row{
		{8, 16, "50%", nil, nil},
		{12, 24, "75%", []string{"CapacityWarning"}, []string{"PoolCapacityWarning"}},
		{14, 28, "87%", []string{"CapacityWarning", "CapacityCritical"}, []string{"PoolCapacityCritical"}},
		{16, 32, "100%", []string{"CapacityWarning", "CapacityCritical", "CapacityExhausted"}, []string{"PoolCapacityExhausted"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if start(plan.Tenant{Namespace: "team", Name: "t17", Ingress: true}) {
		t.Error("there is room for a 17th tenant")
	}
}

// A third Service of a tenant with two addresses takes one address more, from 16 to 17.
func TestOperationsGuide_Growth(t *testing.T) {
	two, one := int32(2), int32(1)
	policy := plan.PolicyOf(&v1alpha1.ProviderConfig{Spec: v1alpha1.ProviderConfigSpec{Network: &v1alpha1.ProviderNetwork{
		Mode: v1alpha1.NetworkModeIPAM, PoolRefs: []v1alpha1.PoolReference{{Name: "lb"}},
		LoadBalancer: &v1alpha1.ProviderLoadBalancer{AllocationMode: v1alpha1.LBAllocationElastic, InitialPoolSize: &two, GrowthIncrement: &one},
	}}})
	first, err := allocator.ParseRange("10.92.90.49-10.92.90.50")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	service := func(name, address string) plan.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		if address != "" {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		}
		return plan.ServiceOf(s, plan.MetalLB{}, now.Add(-time.Second), false)
	}
	blocks := []plan.Block{{Name: "lb", Kind: v1alpha1.TypeLoadBalancer, Range: first, Ready: true}}
	decision := plan.Decide(plan.Tenant{}, policy, blocks, plan.View{
		Services: []plan.Service{service("traefik", "10.92.90.49"), service("web", "10.92.90.50"), service("third", "")},
		InPool:   []allocator.Range{first},
	}, plan.DefaultTiming, now)
	if decision.Need != 1 || decision.Want != 1 || decision.OverQuota != 0 {
		t.Errorf("want one address more, got %+v", decision)
	}
	if len(decision.Offered) != 1 || decision.Offered[0].String() != "10.92.90.49-10.92.90.50" {
		t.Errorf("MetalLB has %v", decision.Offered)
	}
}
