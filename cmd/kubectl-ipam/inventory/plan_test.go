package inventory

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// PlanDeletion counts the staying owners of the state machine: also the loser of a
// conflict, which waits for its addresses, but neither claims whose addresses are outside
// of the pool, nor claims that are being deleted.
func TestPlanDeletion_CountsStayingOwners(t *testing.T) {
	deleting := newAllocation("deleting", "10.0.0.9", "10.0.0.9", butlerv1.TypeNodes)
	deleting.DeletionTimestamp, deleting.Finalizers = &metav1.Time{Time: now}, []string{butlerv1.FinalizerIPAllocation}
	loser := newAllocation("loser", "10.0.0.3", "10.0.0.3", butlerv1.TypeNodes)
	loser.CreationTimestamp = metav1.NewTime(now)
	owner := newAllocation("owner", "10.0.0.1", "10.0.0.3", butlerv1.TypeNodes)
	owner.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	outside := newAllocation("outside", "10.9.0.1", "10.9.0.1", butlerv1.TypeNodes)
	for name, test := range map[string]struct {
		claims []*butlerv1.IPAllocation
		denied string
		owners []string
	}{
		"empty pool":        {},
		"outside":           {claims: []*butlerv1.IPAllocation{outside}},
		"being deleted":     {claims: []*butlerv1.IPAllocation{deleting}},
		"conflict":          {[]*butlerv1.IPAllocation{owner, loser}, "2 IPAllocations own addresses of the pool: delete them first, also IPAllocation ns/loser without addresses after a lost conflict", []string{"owner 10.0.0.1-10.0.0.2", "owner 10.0.0.3"}},
		"one of each":       {[]*butlerv1.IPAllocation{outside, owner, deleting}, "1 IPAllocation owns addresses of the pool: delete it first", []string{"owner 10.0.0.1-10.0.0.3"}},
		"two in the middle": {[]*butlerv1.IPAllocation{newAllocation("b", "10.0.0.7", "10.0.0.7", butlerv1.TypeNodes), owner}, "2 IPAllocations own addresses of the pool: delete them first", []string{"owner 10.0.0.1-10.0.0.3", "b 10.0.0.7"}},
	} {
		t.Run(name, func(t *testing.T) {
			i := New(now, nil)
			i.Add(newPool("10.0.0.0/24"))
			for _, claim := range test.claims {
				i.Add(claim)
			}
			plan := i.PlanDeletion(i.Pool(poolKey))
			var owners []string
			for _, g := range plan.Owners {
				owners = append(owners, g.Owner.Name+" "+g.Range.String())
			}
			if denied := fmt.Sprint(plan.Denied); denied != test.denied && (plan.Denied != nil || test.denied != "") || !slices.Equal(owners, test.owners) {
				t.Errorf("denied %v, owners %q, want %q and %q", plan.Denied, owners, test.denied, test.owners)
			}
			if staying := i.StayingOwners(poolKey); (len(staying) > 0) != (plan.Denied != nil) {
				t.Errorf("denied %v with the staying owners %v", plan.Denied, staying)
			}
		})
	}
}

// If the changed spec breaks a rule, the plan contains only the broken rule: the API
// server would store no such pool, so no owner is affected.
func TestPlanUpdate_OfInvalidSpecHasOnlyFaults(t *testing.T) {
	i := New(now, nil)
	i.Add(newPool("10.0.0.0/24"))
	i.Add(newAllocation("owner", "10.0.0.1", "10.0.0.3", butlerv1.TypeNodes))
	for name, updated := range map[string]*butlerv1.NetworkPool{
		"reserved outside of cidr": newPool("10.0.0.0/24", "10.1.0.0/24"), "not a network": newPool("10.0.0.0/24", "x"), "smaller": newPool("10.0.0.128/25"),
	} {
		plan := i.PlanUpdate(i.Pool(poolKey), updated)
		if len(plan.Faults) != 1 || plan.Denied != nil || len(plan.Owners) > 0 || allocator.Total(plan.Before) != 253 || !slices.Equal(plan.Before, plan.After) {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}

// A patch has only the fields that the change concerns, and null for a removed field. The
// texts of other fields are not in the patch.
func TestSpecPatch(t *testing.T) {
	stored := newPool("10.0.0.0/24", "10.0.0.0/28")
	stored.Spec.Reserved[0].Description = "routers"
	stored.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour}
	stored.Spec.TenantAllocation = &butlerv1.TenantAllocation{Start: "10.0.0.16", End: "10.0.0.31", Defaults: &butlerv1.AllocationDefaults{NodesPerTenant: 3}}
	for name, test := range map[string]struct {
		change      PoolChange
		patch, fail string
	}{
		"remove the last reservation":     {change: PoolChange{Unreserve: []string{"10.0.0.0/28"}}, patch: `{"spec":{"reserved":null}}`},
		"add a reservation":               {change: PoolChange{Reserve: []string{"10.0.0.64/28"}}, patch: `{"spec":{"reserved":[{"cidr":"10.0.0.0/28","description":"routers"},{"cidr":"10.0.0.64/28"}]}}`},
		"add twice":                       {change: PoolChange{Reserve: []string{"10.0.0.64/28", "10.0.0.64/28"}}, patch: `{"spec":{"reserved":[{"cidr":"10.0.0.0/28","description":"routers"},{"cidr":"10.0.0.64/28"}]}}`},
		"reserved already":                {change: PoolChange{Reserve: []string{"10.0.0.0/28"}}},
		"reserved already, host bits":     {change: PoolChange{Reserve: []string{"10.0.0.5/28"}}},
		"larger network":                  {change: PoolChange{CIDR: "10.0.0.0/23"}, patch: `{"spec":{"cidr":"10.0.0.0/23"}}`},
		"network as stored":               {change: PoolChange{CIDR: "10.0.0.0/24"}},
		"ranges in place of start, end":   {change: PoolChange{Ranges: []string{"10.0.0.16-10.0.0.31"}}, patch: `{"spec":{"tenantAllocation":{"end":null,"ranges":[{"end":"10.0.0.31","start":"10.0.0.16"}],"start":null}}}`},
		"remove a network not listed":     {change: PoolChange{Unreserve: []string{"10.0.0.0/29"}}, fail: "spec.reserved has no such network"},
		"add and remove the same network": {change: PoolChange{Reserve: []string{"10.0.0.0/28"}, Unreserve: []string{"10.0.0.0/28"}}, fail: "reserve and unreserve name 10.0.0.0/28"},
	} {
		t.Run(name, func(t *testing.T) {
			before := stored.DeepCopy()
			updated, err := test.change.Apply(stored)
			if test.fail != "" {
				if err == nil || !strings.Contains(err.Error(), test.fail) {
					t.Errorf("error %v, want %q", err, test.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			patch, err := SpecPatch(stored, updated)
			if err != nil || string(patch) != test.patch {
				t.Errorf("%s, %v, want %s", patch, err, test.patch)
			}
			if !reflect.DeepEqual(before, stored) {
				t.Error("Apply has changed the stored pool")
			}
		})
	}
}

// The second of two equal entries of spec.reserved would reserve the network further, so
// the change removes both.
func TestPoolChange_UnreserveRemovesEqualEntries(t *testing.T) {
	updated, err := PoolChange{Unreserve: []string{"10.0.0.0/28"}}.Apply(newPool("10.0.0.0/24", "10.0.0.0/28", "10.0.0.32/28", "10.0.0.0/28"))
	if err != nil || len(updated.Spec.Reserved) != 1 || updated.Spec.Reserved[0].CIDR != "10.0.0.32/28" {
		t.Errorf("%v, %v", updated, err)
	}
}

func TestCooldown(t *testing.T) {
	pool := newPool("10.0.0.0/28")
	pool.Spec.ReuseDelay = &metav1.Duration{Duration: 2 * time.Hour}
	for n, end := range []time.Duration{time.Hour, time.Minute, 90 * time.Minute} {
		address := fmt.Sprint("10.0.0.", 3*n)
		pool.Status.Releases = append(pool.Status.Releases, butlerv1.Release{
			Name: "gone", StartAddress: address, EndAddress: address, ReleasedAt: metav1.NewTime(now.Add(end - 2*time.Hour)), ReusableAt: &metav1.Time{Time: now.Add(end)},
		})
	}
	i := New(now, nil)
	i.Add(pool)
	if ranges, first := i.Cooldown(i.Pool(poolKey)); allocator.Total(ranges) != 3 || !first.Equal(now.Add(time.Minute)) {
		t.Errorf("%v until %v", ranges, first)
	}
	i = New(now, nil)
	i.Add(newPool("10.0.0.0/28"))
	if ranges, first := i.Cooldown(i.Pool(poolKey)); len(ranges) > 0 || !first.IsZero() {
		t.Errorf("%v until %v", ranges, first)
	}
}
