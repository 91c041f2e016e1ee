package reconcilers

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

var releaseTime = time.Unix(1_700_000_000, 0)

// leavingAt is an allocation marked Released, so long after releaseTime.
func leavingAt(t *testing.T, name, span string, after time.Duration) *v1alpha1.IPAllocation {
	a := allocation(name)
	a.Spec.PinnedRange = butler.PinnedRange(mustRange(t, span))
	at := metav1.NewTime(releaseTime.Add(after))
	a.Status = *releasedStatus(a, at)
	return a
}

func poolWithDelay(delay time.Duration) *v1alpha1.NetworkPool {
	return &v1alpha1.NetworkPool{Spec: v1alpha1.NetworkPoolSpec{CIDR: "10.0.0.0/16", ReuseDelay: &metav1.Duration{Duration: delay}}}
}

func TestReleaseIsRecordedOnceAndOldestFirst(t *testing.T) {
	p := poolWithDelay(time.Minute)
	leaving := []*v1alpha1.IPAllocation{leavingAt(t, "late", "10.0.0.8-10.0.0.9", 2*time.Second), leavingAt(t, "early", "10.0.0.0/29", 0)}
	to := recordReleases(p, leaving, releaseTime)
	if len(to.records) != 2 || to.records[0].Name != "early" || to.records[1].Name != "late" || to.fresh != 2 || to.left != 0 || to.room != 0 {
		t.Fatalf("got %+v", to)
	}
	early := to.records[0]
	if early.StartAddress != "10.0.0.0" || early.EndAddress != "10.0.0.7" || !early.ReusableAt.Time.Equal(releaseTime.Add(time.Minute)) || early.Tenant != v1alpha1.RecordedReference(leaving[1].Spec.TenantClusterRef) {
		t.Errorf("the record is %+v", early)
	}
	p.Status.Releases = to.records
	if again := recordReleases(p, leaving, releaseTime.Add(time.Hour)); len(again.records) != 2 || again.fresh != 0 {
		t.Errorf("recorded again: %+v", again)
	}
	leaving = append(leaving, leavingAt(t, "early", "10.0.0.0/29", time.Hour)) // the same name and range, another time
	if again := recordReleases(p, leaving, releaseTime.Add(time.Hour)); len(again.records) != 3 {
		t.Errorf("the second release of one name and range is not recorded: %+v", again)
	}
}

func TestReleaseWithoutDelayIsFreeAtOnce(t *testing.T) {
	to := recordReleases(poolWithDelay(0), []*v1alpha1.IPAllocation{leavingAt(t, "a", "10.0.0.1", 0)}, releaseTime)
	if until := to.records[0].ReusableAt; until != nil {
		t.Errorf("rests until %s", until)
	}
}

func TestRecordsThatRestNoMoreGoOldestFirst(t *testing.T) {
	p := poolWithDelay(time.Minute)
	for i := range keptReleases + 8 {
		r, _ := releaseOf(leavingAt(t, fmt.Sprintf("old-%02d", i), "10.0.0.1", time.Duration(i)*time.Second), p)
		p.Status.Releases = append(p.Status.Releases, r)
	}
	if to := recordReleases(p, nil, releaseTime); len(to.records) != keptReleases+8 {
		t.Errorf("%d records while all of %d rest", len(to.records), keptReleases+8)
	}
	// All but one have rested.
	now := releaseTime.Add(time.Hour)
	p.Status.Releases[1].ReleasedAt, p.Status.Releases[1].ReusableAt = metav1.NewTime(now), &metav1.Time{Time: now.Add(time.Minute)}
	to := recordReleases(p, []*v1alpha1.IPAllocation{leavingAt(t, "new", "10.0.0.2", time.Hour)}, now)
	records := to.records
	if len(records) != keptReleases || to.left != 0 || to.room != 0 {
		t.Fatalf("%d records, %d left, room in %s", len(records), to.left, to.room)
	}
	if records[0].Name != "old-01" || records[1].Name != "old-10" || records[keptReleases-1].Name != "new" {
		t.Errorf("kept %s, %s … %s", records[0].Name, records[1].Name, records[keptReleases-1].Name)
	}
}

// Finalizers that cannot be removed keep as many allocations as there are: each write of the pool recorded some of them anew.
func TestTheRecordOfAnAllocationThatStaysIsKept(t *testing.T) {
	p := poolWithDelay(0)
	var leaving []*v1alpha1.IPAllocation
	for i := range keptReleases + 8 {
		leaving = append(leaving, leavingAt(t, fmt.Sprintf("a-%02d", i), "10.0.0.1", time.Duration(i)*time.Second))
	}
	p.Status.Releases = recordReleases(p, leaving, releaseTime).records
	if to := recordReleases(p, leaving, releaseTime); to.fresh != 0 || len(to.records) != len(leaving) {
		t.Errorf("%d recorded anew, %d records", to.fresh, len(to.records))
	}
	if to := recordReleases(p, leaving[20:], releaseTime); len(to.records) != keptReleases {
		t.Errorf("%d records after 20 have gone", len(to.records))
	}
}

// As the event that tells of waiting releases says.
func TestAShorterDelayMakesRoomForReleasesThatWait(t *testing.T) {
	p := poolWithDelay(time.Hour)
	for i := range maxReleases {
		r, _ := releaseOf(leavingAt(t, fmt.Sprintf("old-%04d", i), "10.0.0.1", time.Duration(i)*time.Second), p)
		p.Status.Releases = append(p.Status.Releases, r)
	}
	leaving := []*v1alpha1.IPAllocation{leavingAt(t, "new", "10.0.0.2", 20*time.Minute)}
	now := releaseTime.Add(20 * time.Minute)
	if to := recordReleases(p, leaving, now); to.left != 1 || to.room == 0 {
		t.Fatalf("%d left, room in %s", to.left, to.room)
	}
	p.Spec.ReuseDelay.Duration = 10 * time.Minute
	to := recordReleases(p, leaving, now)
	if last := to.records[len(to.records)-1]; to.left != 0 || last.Name != "new" || !last.ReusableAt.Time.Equal(now.Add(10*time.Minute)) {
		t.Errorf("%d left, the last is %+v", to.left, last)
	}
	if kept := to.records[0]; kept.ReusableAt.Sub(kept.ReleasedAt.Time) != 10*time.Minute || kept.Name != "old-0601" {
		t.Errorf("of those that rest still the first is %+v", kept)
	}
}

func TestReleasesWaitWhileEverythingRests(t *testing.T) {
	p := poolWithDelay(time.Hour)
	for i := range maxReleases - 1 {
		r, _ := releaseOf(leavingAt(t, fmt.Sprintf("old-%04d", i), "10.0.0.1", time.Duration(i)*time.Second), p)
		p.Status.Releases = append(p.Status.Releases, r)
	}
	leaving := []*v1alpha1.IPAllocation{leavingAt(t, "new-a", "10.0.0.2", 20*time.Minute), leavingAt(t, "new-b", "10.0.0.3", 21*time.Minute)}
	now := releaseTime.Add(30 * time.Minute)
	to := recordReleases(p, leaving, now)
	if len(to.records) != maxReleases || to.records[maxReleases-1].Name != "new-a" || to.left != 1 || to.room != 0 {
		t.Fatalf("%d records, %d left, room in %s", len(to.records), to.left, to.room)
	}
	p.Status.Releases = to.records
	to = recordReleases(p, leaving, now)
	if len(to.records) != maxReleases || to.left != 1 || to.room != lookAgain {
		t.Errorf("%d records, %d left, room in %s, want to look again, as the clock may be wrong", len(to.records), to.left, to.room)
	}
	now = now.Add(30*time.Minute - time.Second)
	if to = recordReleases(p, leaving, now); to.left != 1 || to.room != time.Second {
		t.Errorf("%d left, room in %s, want it when the first has rested", to.left, to.room)
	}
	to = recordReleases(p, leaving, now.Add(to.room))
	if n := len(to.records); n != maxReleases || to.records[n-1].Name != "new-b" || to.left != 0 {
		t.Errorf("later: %d records, %d left", n, to.left)
	}
}

func TestOneWriteTakesNoMoreThanABatch(t *testing.T) {
	var leaving []*v1alpha1.IPAllocation
	for i := range releaseBatch + 5 {
		leaving = append(leaving, leavingAt(t, fmt.Sprintf("a-%03d", i), "10.0.0.1", 0))
	}
	if to := recordReleases(poolWithDelay(0), leaving, releaseTime); len(to.records) != releaseBatch || to.fresh != releaseBatch || to.left != 5 || to.room != 0 {
		t.Errorf("%d records, %d left, room in %s", len(to.records), to.left, to.room)
	}
}

func TestTheRecordOfAnEarlierRestIsNoneOfThis(t *testing.T) {
	now := releaseTime.Add(time.Hour)
	record := func(address string, until time.Time) v1alpha1.Release {
		return v1alpha1.Release{StartAddress: address, EndAddress: address, ReusableAt: &metav1.Time{Time: until}}
	}
	rest := func(address string, until time.Time) ledger.Cooling {
		return ledger.Cooling{Range: mustRange(t, address), Until: until}
	}
	hour := now.Add(time.Hour)
	records := []v1alpha1.Release{record("10.0.0.1", now.Add(-time.Second)), record("10.0.0.2", hour), {StartAddress: "10.0.0.3", EndAddress: "10.0.0.3"}}
	got := unrecorded([]ledger.Cooling{rest("10.0.0.1", hour), rest("10.0.0.2", hour.Add(time.Second)), rest("10.0.0.3", hour), rest("10.0.0.2", time.Time{})}, records, now)
	if len(got) != 3 || got[0].Range != mustRange(t, "10.0.0.1") || got[1].Range != mustRange(t, "10.0.0.3") || !got[2].Until.IsZero() {
		t.Errorf("unrecorded: %v", got)
	}
}

func TestRecordReleases_EndsWithinTheDelayOfNow(t *testing.T) {
	p := poolWithDelay(10 * time.Minute)
	record, _ := releaseOf(leavingAt(t, "ahead", "10.0.0.1", 2*time.Hour), p)
	behind, _ := releaseOf(leavingAt(t, "right", "10.0.0.2", -time.Minute), p)
	p.Status.Releases = []v1alpha1.Release{record, behind}
	now := releaseTime.Add(300 * time.Millisecond)
	until := func(at int) time.Duration { return p.Status.Releases[at].ReusableAt.Sub(releaseTime) }
	for range 3 { // the bound is of when it was first applied
		p.Status.Releases = recordReleases(p, nil, now).records
		if until(0) != 10*time.Minute+time.Second || until(1) != 9*time.Minute {
			t.Fatalf("in cooldown for %s and %s more", until(0), until(1))
		}
		now = now.Add(time.Minute)
	}
	p.Spec.ReuseDelay.Duration = time.Second
	p.Status.Releases = recordReleases(p, nil, now).records
	if left := p.Status.Releases[0].ReusableAt.Sub(now); left > 2*time.Second {
		t.Errorf("with a reuse delay of a second, in cooldown for %s more", left)
	}
	p.Spec.ReuseDelay = nil
	p.Status.Releases = recordReleases(p, nil, now).records
	if left := p.Status.Releases[0].ReusableAt.Sub(now); left >= time.Second {
		t.Errorf("without a reuse delay, in cooldown for %s more", left)
	}
}

func TestReleasedAt_IsNotBeforeTheDeletion(t *testing.T) {
	a := allocation("a")
	if at := releasedAt(a, releaseTime); !at.Equal(releaseTime) {
		t.Errorf("released at %s", at)
	}
	for ahead, want := range map[time.Duration]time.Duration{-time.Hour: 0, time.Hour: time.Hour} {
		a.DeletionTimestamp = &metav1.Time{Time: releaseTime.Add(ahead)}
		if at := releasedAt(a, releaseTime); !at.Equal(releaseTime.Add(want)) {
			t.Errorf("deleted %s after now: released at %s", ahead, at)
		}
	}
}
