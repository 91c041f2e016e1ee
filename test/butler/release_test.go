package butler

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// coolingPool is domainPool whose released addresses cool down, and their records stay.
func coolingPool(namespace, cidr string, delay time.Duration) *v1alpha1.NetworkPool {
	p := domainPool(namespace, cidr)
	p.Spec.ReuseDelay = &metav1.Duration{Duration: delay}
	return p
}

// deleteClaims deletes all allocations of a namespace.
func deleteClaims(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	if err := c.DeleteAllOf(t.Context(), &v1alpha1.IPAllocation{}, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
}

// recorded is the names in a pool's record of releases, each of which is there once.
func recorded(t *testing.T, p *v1alpha1.NetworkPool) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, r := range p.Status.Releases {
		if names[r.Name] {
			t.Errorf("the release of %s is recorded twice", r.Name)
		}
		names[r.Name] = true
	}
	return names
}

func TestRelease_IsRecorded(t *testing.T) {
	ns := alone(t)
	p, a := domainPool(ns, "10.42.0.0/28"), claim(ns, "short-lived", 8)
	suite.Create(t, admin, p, a)
	readyWith(t, admin, a, "")
	suite.Delete(t, admin, a.DeepCopy())
	shows(t, admin, p, "16/0/16")
	if n := len(p.Status.Releases); n != 1 {
		t.Fatalf("%d releases are recorded", n)
	}
	r := p.Status.Releases[0]
	if r.Name != "short-lived" || r.Tenant != v1alpha1.RecordedReference(a.Spec.TenantClusterRef) || r.StartAddress+"-"+r.EndAddress != "10.42.0.0-10.42.0.7" ||
		!r.AllocatedAt.Equal(a.Status.AllocatedAt) || r.ReleasedAt.IsZero() || r.ReusableAt != nil {
		t.Errorf("record %+v", r)
	}
}

func TestRelease_WaitsForFinalizersOfOthers(t *testing.T) {
	ns := alone(t)
	a := claim(ns, "kept", 16)
	a.Finalizers = []string{"example.com/keeper"}
	suite.Create(t, admin, domainPool(ns, "10.42.0.0/28"), a)
	readyWith(t, admin, a, "")
	if err := admin.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	keptBy(t, admin, a, "example.com/keeper")
	if phase := unready(t, admin, a, v1alpha1.ReasonReleased, ""); phase != v1alpha1.PhaseReleased || a.Status.ReleasedAt == nil {
		t.Errorf("status %+v", a.Status)
	}
	suite.RequireDenied(t, admin.Create(t.Context(), claim(ns, "next", 1)), 403)
	suite.Change(t, admin, a, func(a *v1alpha1.IPAllocation) { a.Finalizers = nil })
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Create(ctx, claim(ns, "next", 1)) })
}

func TestRelease_WithoutAddressesAndPool(t *testing.T) {
	ns := alone(t)
	a := claim(ns, "never-served", 1)
	suite.Create(t, admin, a)
	unready(t, admin, a, v1alpha1.ReasonPoolNotFound, "")
	suite.Delete(t, admin, a)
}

func TestRelease_ThreeHundredAtOnce(t *testing.T) {
	ns := alone(t)
	p := coolingPool(ns, "10.42.0.0/22", time.Hour)
	suite.Create(t, admin, p)
	for i := range 300 {
		suite.Create(t, admin, claim(ns, fmt.Sprintf("many-%03d", i), 2))
	}
	deleteClaims(t, admin, ns)
	counts(t, admin, ns, 0, anyAllocation)
	if n := len(recorded(t, suite.Read(t, admin, p))); n != 300 {
		t.Errorf("%d releases are recorded", n)
	}
	shows(t, admin, p, "1024/600/424") // what cools down is not available
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if want := "424 of 1024 addresses available, 0 allocations, 600 addresses in cooldown"; ready == nil || ready.Message != want {
			return fmt.Sprintf("Ready is %+v, want %q", ready, want)
		}
		return ""
	})
}

// fullRecord is a pool whose record has no room, with an allocation that waits for its
// release to be recorded.
func fullRecord(t *testing.T, ns string) (*v1alpha1.NetworkPool, *v1alpha1.IPAllocation) {
	t.Helper()
	p, a := coolingPool(ns, "10.42.0.0/20", time.Hour), claim(ns, "waits", 1)
	suite.Create(t, admin, p, a)
	now := metav1.Now().Rfc3339Copy()
	hour := metav1.NewTime(now.Add(time.Hour))
	var records []v1alpha1.Release
	for i := range 1024 {
		address := fmt.Sprintf("10.42.%d.%d", 8+i/256, i%256)
		records = append(records, v1alpha1.Release{
			Name: fmt.Sprint("cools-", i), Tenant: v1alpha1.RecordedReference(a.Spec.TenantClusterRef),
			StartAddress: address, EndAddress: address, ReleasedAt: now, ReusableAt: &hour,
		})
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		p.Status.Releases = records
		return admin.Status().Update(ctx, p)
	})
	shows(t, admin, p, "4096/1025/3071")
	if err := admin.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	suite.AwaitEvent(t, admin, p, "ReleasesWait", "")
	return p, suite.Read(t, admin, a)
}

func TestRelease_WaitsForRoomInTheRecord(t *testing.T) {
	ns := alone(t)
	p, a := fullRecord(t, ns)
	suite.Change(t, admin, p, func(p *v1alpha1.NetworkPool) { p.Spec.ReuseDelay = &metav1.Duration{Duration: time.Second} })
	suite.AwaitGone(t, admin, a)
	shows(t, admin, p, "4096/0/4096")
	if last := p.Status.Releases[len(p.Status.Releases)-1].Name; last != "waits" {
		t.Errorf("the last record is of %s", last)
	}
}

func TestRelease_WaitsForNoRoomWhereTheNamespaceIsDeleted(t *testing.T) {
	ns := alone(t)
	p, a := fullRecord(t, ns)
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, p} {
		if err := admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	suite.AwaitGone(t, admin, a)
	suite.AwaitGone(t, admin, p)
}

func TestRelease_IsRecordedInAPoolThatIsBeingDeleted(t *testing.T) {
	ns := alone(t)
	p, a := domainPool(ns, "10.42.0.0/28"), claim(ns, "waits", 1)
	p.Finalizers, a.Finalizers = []string{"example.com/keeper"}, []string{"example.com/keeper"}
	suite.Create(t, admin, p, a)
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
		if len(p.Finalizers) != 2 {
			return fmt.Sprintf("finalizers %q", p.Finalizers)
		}
		return ""
	})
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, p} {
		if err := admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	suite.Change(t, admin, p, func(p *v1alpha1.NetworkPool) { p.Finalizers = []string{"example.com/keeper"} }) // a person removes that of the allocator
	if err := admin.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	keptBy(t, admin, a, "example.com/keeper")
	if !recorded(t, suite.Read(t, admin, p))["waits"] {
		t.Errorf("releases %+v", p.Status.Releases)
	}
}

func TestRelease_StaysOnRecordForAWhile(t *testing.T) {
	ns := alone(t)
	p := domainPool(ns, "10.42.0.0/24")
	suite.Create(t, admin, p)
	for i := range 50 {
		suite.Create(t, admin, claim(ns, fmt.Sprintf("many-%02d", i), 2))
	}
	deleteClaims(t, admin, ns)
	counts(t, admin, ns, 0, anyAllocation)
	shows(t, admin, p, "256/0/256")
	if n := len(recorded(t, p)); n < 32 {
		t.Errorf("%d releases are on record, want 32 at least", n)
	}
}

// awaitEmptyJournal waits until a sandbox has no grant in its journal.
func awaitEmptyJournal(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	store, err := journal.NewLeaseStore(s.Config(), sandbox.ManagerNamespace, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		v, err := store.Read(ctx)
		if err == nil && len(v.Entries) > 0 {
			err = fmt.Errorf("%d grants are in the journal", len(v.Entries))
		}
		return err
	})
}

func TestRelease_WhileTheManagerDies(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ManagerArgs: []string{"--shutdown-delay=0s"}})
	restart := func(t *testing.T) {
		t.Helper()
		again(t, s.Managers()[0].Process)
	}

	t.Run("cooldown_goes_on", func(t *testing.T) {
		const delay = 40 * time.Second // longer than the restart takes
		ns := suite.CreateNamespace(t, c)
		p, a := coolingPool(ns, "10.43.0.0/29", delay), claim(ns, "before", 8)
		suite.Create(t, c, p, a)
		readyWith(t, c, a, "")
		suite.Delete(t, c, a)
		awaitEmptyJournal(t, s) // a grant in the journal would keep the addresses for longer than they cool down
		restart(t)
		if n := len(suite.Read(t, c, p).Status.Releases); n != 1 {
			t.Fatalf("%d releases are recorded", n)
		}
		r := p.Status.Releases[0]
		if got := r.ReusableAt.Sub(r.ReleasedAt.Time); got != delay {
			t.Errorf("the addresses cool down for %s", got)
		}
		if !time.Now().Before(r.ReusableAt.Time) {
			t.Fatal("the restart took longer than the cooldown: the test shows nothing")
		}
		suite.RequireDenied(t, c.Create(t.Context(), claim(ns, "early", 8)), 403)
		suite.Eventually(t, delay+suite.Soon, func(ctx context.Context) error { return c.Create(ctx, claim(ns, "after", 8)) })
		if time.Now().Before(r.ReusableAt.Time) {
			t.Error("the addresses are allocated during their cooldown")
		}
	})

	t.Run("each_is_recorded", func(t *testing.T) {
		const total = 300
		ns := suite.CreateNamespace(t, c)
		p := coolingPool(ns, "10.43.0.0/22", time.Hour)
		suite.Create(t, c, p)
		for i := range total {
			suite.Create(t, c, claim(ns, fmt.Sprintf("many-%03d", i), 2))
		}
		counts(t, c, ns, total, isReady)
		for _, left := range []int{total - 1, total / 2} {
			deleteClaims(t, c, ns)
			suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
				n, err := count(ctx, c, ns, anyAllocation)
				if err == nil && n > left {
					err = fmt.Errorf("%d allocations are left", n)
				}
				return err
			})
			restart(t)
		}
		counts(t, c, ns, 0, anyAllocation)
		if n := len(recorded(t, suite.Read(t, c, p))); n != total {
			t.Errorf("%d releases are recorded", n)
		}
	})
}
