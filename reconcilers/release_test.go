package reconcilers

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

var releaseTime = time.Unix(1_700_000_000, 0)

// leavingAt is an allocation marked Released, so long after releaseTime.
func leavingAt(t *testing.T, name, span string, after time.Duration) v1alpha1.IPAllocation {
	a := allocation(name)
	a.Spec.PinnedRange = butler.PinnedRange(mustRange(t, span))
	at := metav1.NewTime(releaseTime.Add(after))
	a.Status = *releasedStatus(a, at)
	return *a
}

func poolWithDelay(delay time.Duration) *v1alpha1.NetworkPool {
	return &v1alpha1.NetworkPool{Spec: v1alpha1.NetworkPoolSpec{CIDR: "10.0.0.0/16", ReuseDelay: &metav1.Duration{Duration: delay}}}
}

func TestReleaseIsRecordedOnceAndOldestFirst(t *testing.T) {
	p := poolWithDelay(time.Minute)
	leaving := []v1alpha1.IPAllocation{leavingAt(t, "late", "10.0.0.8-10.0.0.9", 2*time.Second), leavingAt(t, "early", "10.0.0.0/29", 0)}
	records, left, room := recordReleases(p, leaving, releaseTime)
	if len(records) != 2 || records[0].Name != "early" || records[1].Name != "late" || left != 0 || room != 0 {
		t.Fatalf("got %v, %d left, room in %s", records, left, room)
	}
	early := records[0]
	if early.StartAddress != "10.0.0.0" || early.EndAddress != "10.0.0.7" || !early.ReusableAt.Time.Equal(releaseTime.Add(time.Minute)) || early.Tenant != leaving[1].Spec.TenantClusterRef {
		t.Errorf("the record is %+v", early)
	}
	p.Status.Releases = records
	if again, _, _ := recordReleases(p, leaving, releaseTime.Add(time.Hour)); len(again) != 2 {
		t.Errorf("recorded again: %v", again)
	}
	leaving = append(leaving, leavingAt(t, "early", "10.0.0.0/29", time.Hour)) // the same name and range, another time
	if again, _, _ := recordReleases(p, leaving, releaseTime.Add(time.Hour)); len(again) != 3 {
		t.Errorf("the second release of one name and range is not recorded: %v", again)
	}
}

func TestReleaseWithoutDelayIsFreeAtOnce(t *testing.T) {
	records, _, _ := recordReleases(poolWithDelay(0), []v1alpha1.IPAllocation{leavingAt(t, "a", "10.0.0.1", 0)}, releaseTime)
	if records[0].ReusableAt != nil {
		t.Errorf("rests until %s", records[0].ReusableAt)
	}
}

func TestFullListDropsTheOldestThatRestNoMore(t *testing.T) {
	p := poolWithDelay(time.Minute)
	for i := range maxReleases {
		r, _ := releaseOf(ptr.To(leavingAt(t, fmt.Sprintf("old-%04d", i), "10.0.0.1", time.Duration(i)*time.Second)), p)
		p.Status.Releases = append(p.Status.Releases, r)
	}
	// The first two thirds have rested, but one of them rests longer.
	now := releaseTime.Add(12 * time.Minute)
	p.Status.Releases[1].ReusableAt = &metav1.Time{Time: now.Add(time.Hour)}
	records, left, room := recordReleases(p, []v1alpha1.IPAllocation{leavingAt(t, "new-a", "10.0.0.2", time.Hour), leavingAt(t, "new-b", "10.0.0.3", time.Hour)}, now)
	if len(records) != maxReleases || left != 0 || room != 0 {
		t.Fatalf("%d records, %d left, room in %s", len(records), left, room)
	}
	if records[0].Name != "old-0001" || records[1].Name != "old-0003" || records[maxReleases-1].Name != "new-b" {
		t.Errorf("kept %s, %s … %s", records[0].Name, records[1].Name, records[maxReleases-1].Name)
	}
}

func TestReleasesWaitWhileEverythingRests(t *testing.T) {
	p := poolWithDelay(time.Hour)
	for i := range maxReleases - 1 {
		r, _ := releaseOf(ptr.To(leavingAt(t, fmt.Sprintf("old-%04d", i), "10.0.0.1", time.Duration(i)*time.Second)), p)
		p.Status.Releases = append(p.Status.Releases, r)
	}
	leaving := []v1alpha1.IPAllocation{leavingAt(t, "new-a", "10.0.0.2", 20*time.Minute), leavingAt(t, "new-b", "10.0.0.3", 21*time.Minute)}
	now := releaseTime.Add(30 * time.Minute)
	records, left, room := recordReleases(p, leaving, now)
	if len(records) != maxReleases || records[maxReleases-1].Name != "new-a" || left != 1 || room != 0 {
		t.Fatalf("%d records, %d left, room in %s", len(records), left, room)
	}
	p.Status.Releases = records
	records, left, room = recordReleases(p, leaving, now)
	if len(records) != maxReleases || left != 1 || room != 30*time.Minute {
		t.Errorf("%d records, %d left, room in %s, want it when the first has rested", len(records), left, room)
	}
	records, left, _ = recordReleases(p, leaving, now.Add(room))
	if len(records) != maxReleases || records[maxReleases-1].Name != "new-b" || left != 0 {
		t.Errorf("later: %d records, %d left", len(records), left)
	}
}

func TestOneWriteTakesNoMoreThanABatch(t *testing.T) {
	var leaving []v1alpha1.IPAllocation
	for i := range releaseBatch + 5 {
		leaving = append(leaving, leavingAt(t, fmt.Sprintf("a-%03d", i), "10.0.0.1", 0))
	}
	if records, left, room := recordReleases(poolWithDelay(0), leaving, releaseTime); len(records) != releaseBatch || left != 5 || room != 0 {
		t.Errorf("%d records, %d left, room in %s", len(records), left, room)
	}
}
