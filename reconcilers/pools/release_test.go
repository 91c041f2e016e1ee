package pools

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

var releaseTime = time.Unix(1_700_000_000, 0)

// releasedAfter returns an allocation marked Released, this long after releaseTime.
func releasedAfter(t *testing.T, name, span string, after time.Duration) *v1alpha1.IPAllocation {
	a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "butler-system", Name: name}}
	a.Spec.TenantClusterRef = v1alpha1.NamespacedObjectReference{Name: "my-cluster", Namespace: "team-backend"}
	a.Spec.PinnedRange = butler.FormatPinnedRange(mustRange(t, span))
	at := metav1.NewTime(releaseTime.Add(after))
	a.Status.Phase, a.Status.ReleasedAt = v1alpha1.PhaseReleased, ptr.To(at)
	return a
}

func poolWithDelay(delay time.Duration) *v1alpha1.NetworkPool {
	return &v1alpha1.NetworkPool{Spec: v1alpha1.NetworkPoolSpec{CIDR: "10.0.0.0/16", ReuseDelay: &metav1.Duration{Duration: delay}}}
}

func TestRecordReleases_OnceAndOldestFirst(t *testing.T) {
	p := poolWithDelay(time.Minute)
	released := []*v1alpha1.IPAllocation{releasedAfter(t, "late", "10.0.0.8-10.0.0.9", 2*time.Second), releasedAfter(t, "early", "10.0.0.0/29", 0)}
	to := recordReleases(p, released, releaseTime)
	if len(to.records) != 2 || to.records[0].Name != "early" || to.records[1].Name != "late" || to.fresh != 2 || to.left != 0 || to.waitForRoom != 0 {
		t.Fatalf("got %+v", to)
	}
	early := to.records[0]
	if early.StartAddress != "10.0.0.0" || early.EndAddress != "10.0.0.7" || !early.ReusableAt.Time.Equal(releaseTime.Add(time.Minute)) || early.Tenant != v1alpha1.RecordedReference(released[1].Spec.TenantClusterRef) {
		t.Errorf("the record is %+v", early)
	}
	p.Status.Releases = to.records
	if again := recordReleases(p, released, releaseTime.Add(time.Hour)); len(again.records) != 2 || again.fresh != 0 {
		t.Errorf("recorded again: %+v", again)
	}
	released = append(released, releasedAfter(t, "early", "10.0.0.0/29", time.Hour)) // the same name and range, another time
	if again := recordReleases(p, released, releaseTime.Add(time.Hour)); len(again.records) != 3 {
		t.Errorf("the second release of one name and range is not recorded: %+v", again)
	}
}

func TestRecordReleases_WithoutDelay(t *testing.T) {
	to := recordReleases(poolWithDelay(0), []*v1alpha1.IPAllocation{releasedAfter(t, "a", "10.0.0.1", 0)}, releaseTime)
	if until := to.records[0].ReusableAt; until != nil {
		t.Errorf("in cooldown until %s", until)
	}
}

func TestRecordReleases_RemovesOldestAfterCooldown(t *testing.T) {
	p := poolWithDelay(time.Minute)
	for i := range keptReleases + 8 {
		r, _ := releaseOf(releasedAfter(t, fmt.Sprintf("old-%02d", i), "10.0.0.1", time.Duration(i)*time.Second), p)
		p.Status.Releases = append(p.Status.Releases, r)
	}
	if to := recordReleases(p, nil, releaseTime); len(to.records) != keptReleases+8 {
		t.Errorf("%d records while all of %d are in cooldown", len(to.records), keptReleases+8)
	}
	// All cooldowns but one have ended.
	now := releaseTime.Add(time.Hour)
	p.Status.Releases[1].ReleasedAt, p.Status.Releases[1].ReusableAt = metav1.NewTime(now), &metav1.Time{Time: now.Add(time.Minute)}
	to := recordReleases(p, []*v1alpha1.IPAllocation{releasedAfter(t, "new", "10.0.0.2", time.Hour)}, now)
	records := to.records
	if len(records) != keptReleases || to.left != 0 || to.waitForRoom != 0 {
		t.Fatalf("%d records, %d left, room in %s", len(records), to.left, to.waitForRoom)
	}
	if records[0].Name != "old-01" || records[1].Name != "old-10" || records[keptReleases-1].Name != "new" {
		t.Errorf("kept %s, %s … %s", records[0].Name, records[1].Name, records[keptReleases-1].Name)
	}
}

// Allocations whose finalizer could not be removed were recorded again by each write of
// the pool.
func TestRecordReleases_KeepsRecordsOfStoredAllocations(t *testing.T) {
	p := poolWithDelay(0)
	var released []*v1alpha1.IPAllocation
	for i := range keptReleases + 8 {
		released = append(released, releasedAfter(t, fmt.Sprintf("a-%02d", i), "10.0.0.1", time.Duration(i)*time.Second))
	}
	p.Status.Releases = recordReleases(p, released, releaseTime).records
	if to := recordReleases(p, released, releaseTime); to.fresh != 0 || len(to.records) != len(released) {
		t.Errorf("%d recorded again, %d records", to.fresh, len(to.records))
	}
	if to := recordReleases(p, released[20:], releaseTime); len(to.records) != keptReleases {
		t.Errorf("%d records after 20 have gone", len(to.records))
	}
}

// Event ReleasesWait recommends a shorter delay.
func TestRecordReleases_ShorterDelayMakesRoom(t *testing.T) {
	p := poolWithDelay(time.Hour)
	for i := range maxReleases {
		r, _ := releaseOf(releasedAfter(t, fmt.Sprintf("old-%04d", i), "10.0.0.1", time.Duration(i)*time.Second), p)
		p.Status.Releases = append(p.Status.Releases, r)
	}
	released := []*v1alpha1.IPAllocation{releasedAfter(t, "new", "10.0.0.2", 20*time.Minute)}
	now := releaseTime.Add(20 * time.Minute)
	if to := recordReleases(p, released, now); to.left != 1 || to.waitForRoom == 0 {
		t.Fatalf("%d left, room in %s", to.left, to.waitForRoom)
	}
	p.Spec.ReuseDelay.Duration = 10 * time.Minute
	to := recordReleases(p, released, now)
	if last := to.records[len(to.records)-1]; to.left != 0 || last.Name != "new" || !last.ReusableAt.Time.Equal(now.Add(10*time.Minute)) {
		t.Errorf("%d left, the last is %+v", to.left, last)
	}
	if kept := to.records[0]; kept.ReusableAt.Sub(kept.ReleasedAt.Time) != 10*time.Minute || kept.Name != "old-0601" {
		t.Errorf("the first record in cooldown is %+v", kept)
	}
}

func TestRecordReleases_WaitWhileAllAreInCooldown(t *testing.T) {
	p := poolWithDelay(time.Hour)
	for i := range maxReleases - 1 {
		r, _ := releaseOf(releasedAfter(t, fmt.Sprintf("old-%04d", i), "10.0.0.1", time.Duration(i)*time.Second), p)
		p.Status.Releases = append(p.Status.Releases, r)
	}
	released := []*v1alpha1.IPAllocation{releasedAfter(t, "new-a", "10.0.0.2", 20*time.Minute), releasedAfter(t, "new-b", "10.0.0.3", 21*time.Minute)}
	now := releaseTime.Add(30 * time.Minute)
	to := recordReleases(p, released, now)
	if len(to.records) != maxReleases || to.records[maxReleases-1].Name != "new-a" || to.left != 1 || to.waitForRoom != 0 {
		t.Fatalf("%d records, %d left, room in %s", len(to.records), to.left, to.waitForRoom)
	}
	p.Status.Releases = to.records
	to = recordReleases(p, released, now)
	if len(to.records) != maxReleases || to.left != 1 || to.waitForRoom != roomPoll {
		t.Errorf("%d records, %d left, room in %s, want the next look, as the clock may be wrong", len(to.records), to.left, to.waitForRoom)
	}
	now = now.Add(30*time.Minute - time.Second)
	if to = recordReleases(p, released, now); to.left != 1 || to.waitForRoom != time.Second {
		t.Errorf("%d left, room in %s, want the end of the first cooldown", to.left, to.waitForRoom)
	}
	to = recordReleases(p, released, now.Add(to.waitForRoom))
	if n := len(to.records); n != maxReleases || to.records[n-1].Name != "new-b" || to.left != 0 {
		t.Errorf("later: %d records, %d left", n, to.left)
	}
}

func TestRecordReleases_AtMostABatch(t *testing.T) {
	var released []*v1alpha1.IPAllocation
	for i := range recordBatch + 5 {
		released = append(released, releasedAfter(t, fmt.Sprintf("a-%03d", i), "10.0.0.1", 0))
	}
	if to := recordReleases(poolWithDelay(0), released, releaseTime); len(to.records) != recordBatch || to.fresh != recordBatch || to.left != 5 || to.waitForRoom != 0 {
		t.Errorf("%d records, %d left, room in %s", len(to.records), to.left, to.waitForRoom)
	}
}

func TestRangesForList_IgnoresReleaseRecordsOfEarlierCooldowns(t *testing.T) {
	now := releaseTime.Add(time.Hour)
	record := func(address string, until time.Time) v1alpha1.Release {
		return v1alpha1.Release{StartAddress: address, EndAddress: address, ReusableAt: &metav1.Time{Time: until}}
	}
	cooldown := func(address string, until time.Time) ledger.RecordedRange {
		return ledger.RecordedRange{Range: mustRange(t, address), Until: until}
	}
	hour := now.Add(time.Hour)
	records := []v1alpha1.Release{record("10.0.0.1", now.Add(-time.Second)), record("10.0.0.2", hour), {StartAddress: "10.0.0.3", EndAddress: "10.0.0.3"}}
	got := rangesForList([]ledger.RecordedRange{cooldown("10.0.0.1", hour), cooldown("10.0.0.2", hour.Add(time.Second)), cooldown("10.0.0.3", hour), cooldown("10.0.0.2", time.Time{})}, records, now)
	if len(got) != 3 || got[0].Range != mustRange(t, "10.0.0.1") || got[1].Range != mustRange(t, "10.0.0.3") || !got[2].Until.IsZero() {
		t.Errorf("ranges for the list: %v", got)
	}
}

func TestRecordReleases_EndsWithinTheDelayOfNow(t *testing.T) {
	p := poolWithDelay(10 * time.Minute)
	record, _ := releaseOf(releasedAfter(t, "ahead", "10.0.0.1", 2*time.Hour), p)
	behind, _ := releaseOf(releasedAfter(t, "right", "10.0.0.2", -time.Minute), p)
	p.Status.Releases = []v1alpha1.Release{record, behind}
	now := releaseTime.Add(300 * time.Millisecond)
	until := func(at int) time.Duration { return p.Status.Releases[at].ReusableAt.Sub(releaseTime) }
	for range 3 { // the first call decides the bound
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

func mustRange(t *testing.T, s string) allocator.Range {
	t.Helper()
	r, err := allocator.ParseRange(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
