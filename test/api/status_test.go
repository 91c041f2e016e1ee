package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

func newPool(name string) *v1alpha1.NetworkPool {
	return &v1alpha1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.NetworkPoolSpec{CIDR: "10.40.0.0/24"},
	}
}

func newClaim(name string) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: "vlan40-pool"},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Namespace: "team-backend", Name: "my-cluster"},
			Type:             v1alpha1.TypeNodes,
		},
	}
}

// columns is what kubectl get prints of one object, without its age.
func columns(t *testing.T, group schema.GroupVersion, resource, name string) map[string]string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	body, err := clients.RESTClient().Get().
		AbsPath("/apis", group.Group, group.Version, "namespaces", namespace, resource, name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(body, table); err != nil {
		t.Fatal(err)
	}
	cells := map[string]string{}
	for i, column := range table.ColumnDefinitions {
		if column.Name != "Age" && column.Priority == 0 {
			cells[column.Name] = fmt.Sprint(table.Rows[0].Cells[i])
		}
	}
	return cells
}

func TestNetworkPool_Columns(t *testing.T) {
	p := newPool("columns")
	suite.CreateForTest(t, admin, p)
	p.Status.TotalIPs, p.Status.AllocatedIPs, p.Status.AvailableIPs, p.Status.Summary = 1<<62, 1<<62, 0, "4611686018427387904 allocated of a /66"
	if err := admin.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"Name": "columns", "CIDR": "10.40.0.0/24", "Available": "0", "Allocated": "4611686018427387904", "Total": "4611686018427387904", "Summary": p.Status.Summary,
	}
	if diff := cmp.Diff(want, columns(t, v1alpha1.GroupVersion, "networkpools", "columns")); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}

func TestIPAllocation_Columns(t *testing.T) {
	a := newClaim("columns")
	a.Spec.PinnedRange = &v1alpha1.PinnedIPRange{StartAddress: "10.40.0.64", EndAddress: "10.40.0.68"}
	suite.CreateForTest(t, admin, a)
	want := map[string]string{
		"Name": "columns", "Pool": "vlan40-pool", "Cluster": "my-cluster", "Type": "nodes", "Phase": "<nil>", "Start": "10.40.0.64", "End": "10.40.0.68",
	}
	if diff := cmp.Diff(want, columns(t, v1alpha1.GroupVersion, "ipallocations", "columns")); diff != "" {
		t.Errorf("columns before status is written (-want +got):\n%s", diff)
	}
	a.Status.Phase = v1alpha1.PhaseAllocated
	if err := admin.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	want["Phase"] = "Allocated"
	if diff := cmp.Diff(want, columns(t, v1alpha1.GroupVersion, "ipallocations", "columns")); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}

func TestShortNames_EveryKind(t *testing.T) {
	suite.CreateForTest(t, admin, newPool("short-names"))
	suite.CreateForTest(t, admin, newClaim("short-names"))
	for _, short := range []string{"np", "ipa"} {
		if _, _, err := cluster.Kubectl(t.Context(), "", "get", short, "short-names", "--namespace="+namespace); err != nil {
			t.Error(err)
		}
	}
}

func TestStatus_IsASubresource(t *testing.T) {
	a := newClaim("status-alone")
	a.Status.Phase = v1alpha1.PhaseAllocated
	suite.CreateForTest(t, admin, a)
	if a.Status.Phase != "" {
		t.Errorf("a create set status.phase to %q", a.Status.Phase)
	}
	a.Spec.Type, a.Status.Phase = v1alpha1.TypeLoadBalancer, v1alpha1.PhasePending
	if err := admin.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if a.Spec.Type != v1alpha1.TypeNodes || a.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("a write of status left type %q and phase %q", a.Spec.Type, a.Status.Phase)
	}
}

// Who waits for an object that has no condition yet takes it for finished: kstatus does.
func TestStatus_NotReadyBeforeTheFirstReconcile(t *testing.T) {
	a, p := newClaim("fresh"), newPool("fresh")
	suite.CreateForTest(t, admin, a)
	suite.CreateForTest(t, admin, p)
	for kind, conditions := range map[string][]metav1.Condition{"IPAllocation": a.Status.Conditions, "NetworkPool": p.Status.Conditions} {
		if len(conditions) != 1 || conditions[0].Type != v1alpha1.ConditionReady || conditions[0].Status != metav1.ConditionUnknown || conditions[0].Reason != v1alpha1.ReasonPending {
			t.Errorf("the answer to the create of an %s has the conditions %+v", kind, conditions)
		}
	}
}

// The largest statuses that the allocator writes must be accepted: a write that is
// refused would be tried for ever.
func TestStatus_LargestIsAccepted(t *testing.T) {
	now := metav1.NewTime(time.Unix(1_800_000_000, 0))
	p := newPool("fullest")
	suite.CreateForTest(t, admin, p)
	for range 1024 {
		p.Status.Releases = append(p.Status.Releases, v1alpha1.Release{
			Name:         strings.Repeat("n", 63),
			Tenant:       v1alpha1.RecordedReference{Namespace: strings.Repeat("s", 63), Name: "A Name Of Earlier Days"},
			StartAddress: "2001:db8:1111:2222:3333:4444:5555:6666", EndAddress: "2001:db8:1111:2222:3333:4444:5555:7777",
			AllocatedAt: &now, ReleasedAt: now, ReusableAt: &now,
		})
	}
	for i := range 512 {
		start := fmt.Sprintf("2001:db8::%x", i)
		p.Status.UnmanagedRanges = append(p.Status.UnmanagedRanges, v1alpha1.UnmanagedRange{Start: start, End: start})
	}
	for i := range 2048 {
		p.Status.InfrastructureAllocations = append(p.Status.InfrastructureAllocations, v1alpha1.InfrastructureAllocation{
			IP: fmt.Sprintf("2001:db8::%x", i), Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "node"},
		})
	}
	if err := admin.Status().Update(t.Context(), p); err != nil {
		t.Error(err)
	}

	a := newClaim("fullest")
	suite.CreateForTest(t, admin, a)
	for i := range 4096 {
		a.Status.Addresses = append(a.Status.Addresses, fmt.Sprintf("2001:db8:1111:2222:3333:4444:5555:%x", 0x1000+i))
	}
	a.Status.CIDR = "2001:db8:1111:2222:3333:4444:5555:1000-2001:db8:1111:2222:3333:4444:5555:1fff"
	a.Status.AllocatedCount = 1<<63 - 1
	if err := admin.Status().Update(t.Context(), a); err != nil {
		t.Error(err)
	}
}

func TestStatus_Rules(t *testing.T) {
	now, tooMuch := metav1.NewTime(time.Unix(1_800_000_000, 0)), int32(101)
	cases := map[string]struct {
		change func(*v1alpha1.NetworkPool)
		want   []string
	}{
		"fragmentation above 100 %": {
			change: func(p *v1alpha1.NetworkPool) { p.Status.FragmentationPercent = &tooMuch },
			want:   []string{`status.fragmentationPercent: Invalid value: 101: fragmentationPercent in body should be less than or equal to 100`},
		},
		"one address listed twice": {
			change: func(p *v1alpha1.NetworkPool) {
				entry := v1alpha1.InfrastructureAllocation{IP: "10.40.0.1", Source: "node"}
				p.Status.InfrastructureAllocations = []v1alpha1.InfrastructureAllocation{entry, entry}
			},
			want: []string{`status.infrastructureAllocations[1]: Duplicate value: {"ip":"10.40.0.1"}`},
		},
		"no address": {
			change: func(p *v1alpha1.NetworkPool) {
				p.Status.InfrastructureAllocations = []v1alpha1.InfrastructureAllocation{{IP: "10.40.0", Source: "node"}}
			},
			want: []string{`status.infrastructureAllocations[0].ip: Invalid value: "10.40.0": ip must be an IPv4 or IPv6 address`},
		},
		"more releases than are kept": {
			change: func(p *v1alpha1.NetworkPool) {
				p.Status.Releases = slices.Repeat([]v1alpha1.Release{{ReleasedAt: now}}, 1025)
			},
			want: []string{`status.releases: Too many: 1025: must have at most 1024 items`},
		},
	}
	p := newPool("status-rules")
	suite.CreateForTest(t, admin, p)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := p.DeepCopy()
			tc.change(changed)
			err := admin.Status().Update(t.Context(), changed, client.DryRunAll)
			if diff := diffFaults(t, tc.want, err); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}
