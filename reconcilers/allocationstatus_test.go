package reconcilers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func mustRange(t *testing.T, s string) allocator.Range {
	t.Helper()
	r, err := allocator.ParseRange(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func allocation(name string) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "butler-system", Name: name, Generation: 3},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: "vlan40-pool"},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "my-cluster", Namespace: "team-backend"},
			Type:             v1alpha1.TypeNodes,
		},
	}
}

func TestAllocatedStatus_MatchesTheProductPage(t *testing.T) {
	now := metav1.Unix(1_771_149_630, 0)
	got := allocatedStatus(allocation("my-cluster-nodes"), mustRange(t, "10.40.0.64-10.40.0.68"), now)
	want := &v1alpha1.IPAllocationStatus{
		Phase: "Allocated",
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: "True", Reason: "Allocated", Message: "5 IPs allocated from vlan40-pool", ObservedGeneration: 3,
		}},
		StartAddress: "10.40.0.64", EndAddress: "10.40.0.68",
		Addresses:      []string{"10.40.0.64", "10.40.0.65", "10.40.0.66", "10.40.0.67", "10.40.0.68"},
		AllocatedCount: 5, ObservedGeneration: 3, AllocatedAt: &now, AllocatedBy: "networkpool-controller",
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(metav1.Condition{}.LastTransitionTime)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestAllocatedStatus_RangesOfEverySize(t *testing.T) {
	for _, tc := range []struct {
		span, cidr string
		count      int64
		listed     int
		message    string
	}{
		{"10.0.0.7", "10.0.0.7/32", 1, 1, "1 IP allocated from vlan40-pool"},
		{"10.0.0.8-10.0.0.15", "10.0.0.8/29", 8, 8, "8 IPs allocated from vlan40-pool"},
		{"10.0.0.9-10.0.0.16", "", 8, 8, "8 IPs allocated from vlan40-pool"},
		{"10.0.0.0-10.0.15.255", "10.0.0.0/20", 4096, 4096, "4096 IPs allocated from vlan40-pool"},
		{"10.0.0.0-10.0.16.0", "", 4097, 0, "4097 IPs allocated from vlan40-pool; more than 4096 are not listed: see startAddress and endAddress"},
		{"2001:db8::/64", "2001:db8::/64", 1<<63 - 1, 0, "about 2^64 IPs allocated from vlan40-pool; more than 4096 are not listed: see startAddress and endAddress"},
	} {
		t.Run(tc.span, func(t *testing.T) {
			got := allocatedStatus(allocation("a"), mustRange(t, tc.span), metav1.Now())
			if got.CIDR != tc.cidr || got.AllocatedCount != tc.count || len(got.Addresses) != tc.listed || got.Conditions[0].Message != tc.message {
				t.Errorf("got cidr %q, count %d, %d listed, %q", got.CIDR, got.AllocatedCount, len(got.Addresses), got.Conditions[0].Message)
			}
		})
	}
}

func TestAllocatedStatus_Idempotent(t *testing.T) {
	a := allocation("a")
	r := mustRange(t, "10.0.0.0-10.0.0.4")
	a.Status = *allocatedStatus(a, r, metav1.Unix(1, 0))
	if diff := cmp.Diff(&a.Status, allocatedStatus(a, r, metav1.Unix(2, 0))); diff != "" {
		t.Errorf("a second reconcile would write again (-first +second):\n%s", diff)
	}
}

func TestDeniedStatus_StableText(t *testing.T) {
	pool := butler.NetworkPoolKey("butler-system", "vlan40-pool")
	exhausted := func(free int64) error {
		return &ledger.PoolError{Pool: pool, Err: &allocator.ExhaustedError{Requested: 8, Available: free, Largest: 4}}
	}
	for name, tc := range map[string]struct {
		err           error
		phase, reason string
		message       string
	}{
		"no pool": {&ledger.NoPoolError{Pool: pool}, "Pending", "PoolNotFound",
			"pool butler-system/vlan40-pool does not exist: the allocation is made as soon as it does"},
		"pool being deleted": {&ledger.PoolDeletingError{Pool: pool}, "Pending", "Deleting",
			"pool butler-system/vlan40-pool is being deleted and allocates no more addresses: use another pool"},
		"pool breaks a rule": {&ledger.FaultyPoolError{Pool: pool, Fault: "spec.cidr: no"}, "Failed", "AllocationFailed",
			"pool butler-system/vlan40-pool breaks a rule and allocates no addresses until it is corrected: spec.cidr: no"},
		"full": {exhausted(5), "Failed", "PoolExhausted",
			"pool exhausted: pool butler-system/vlan40-pool has no free block of 8 addresses: enlarge it, release some or ask for fewer"},
		"full, other numbers": {exhausted(6), "Failed", "PoolExhausted",
			"pool exhausted: pool butler-system/vlan40-pool has no free block of 8 addresses: enlarge it, release some or ask for fewer"},
		"full, some promised": {&ledger.PoolError{Pool: pool, Err: exhausted(5), Promised: 2}, "Failed", "PoolExhausted",
			"pool exhausted: pool butler-system/vlan40-pool has no free block of 8 addresses: enlarge it, release some or ask for fewer; some addresses are promised to creates in progress, those of failed creates are free again soon"},
		"reserved": {&ledger.PoolError{Pool: pool, Err: &allocator.BlockedError{Range: mustRange(t, "10.0.0.0/28")}}, "Failed", "AllocationFailed",
			"pool butler-system/vlan40-pool: 10.0.0.0-10.0.0.15 is reserved: choose a range outside it"},
		"owned": {&ledger.OwnedError{Range: mustRange(t, "10.0.0.1"), Owner: butler.IPAllocationKey("butler-system", "web")}, "Failed", "AllocationFailed",
			"10.0.0.1 is owned by ipallocations/web"},
		"owned in another namespace": {&ledger.OwnedError{Range: mustRange(t, "10.0.0.1"), Owner: butler.IPAllocationKey("secret", "web")}, "Failed", "AllocationFailed",
			"10.0.0.1 is owned in another namespace"},
		"granted to a create": {&ledger.OwnedError{Range: mustRange(t, "10.0.0.1"), Owner: butler.IPAllocationKey("butler-system", ""), Promised: true}, "Failed", "AllocationFailed",
			"10.0.0.1 is owned by a create that is in flight"},
		"in cooldown": {&ledger.OwnedError{Range: mustRange(t, "10.0.0.1"), Until: time.Unix(0, 0)}, "Failed", "AllocationFailed",
			"10.0.0.1 was released and is in cooldown until 1970-01-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			got := deniedStatus(allocation("a"), 8, tc.err)
			c := got.Conditions[0]
			if string(got.Phase) != tc.phase || c.Reason != tc.reason || c.Message != tc.message || c.Status != "False" {
				t.Errorf("got %s, %s %s: %s", got.Phase, c.Status, c.Reason, c.Message)
			}
			if stalled := meta.IsStatusConditionTrue(got.Conditions, v1alpha1.ConditionStalled); stalled != (tc.phase == "Failed") {
				t.Errorf("%s, and stalled: %t", got.Phase, stalled)
			}
		})
	}
}
