package ledger

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

var box *sandbox.Sandbox

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // client-go logs every request that times out, and here they do
	ctrllog.SetLogger(logr.Discard())
	suite.Main(m, sandbox.Options{}, func(_ context.Context, s *sandbox.Sandbox) error {
		box = s
		return nil
	})
}

// testJournal is a journal in a namespace of its own.
type testJournal struct {
	t         *testing.T
	store     *journal.LeaseStore
	client    kubernetes.Interface
	namespace string
}

func newTestJournal(t *testing.T) *testJournal {
	t.Helper()
	client, err := kubernetes.NewForConfig(box.Config())
	if err != nil {
		t.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), namespace(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := journal.NewLeaseStore(box.Config(), ns.Name, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return &testJournal{t: t, store: store, client: client, namespace: ns.Name}
}

func (d *testJournal) write(v journal.Revision) journal.Revision {
	d.t.Helper()
	rv, err := d.store.Write(d.t.Context(), v)
	if err != nil {
		d.t.Fatal(err)
	}
	v.ResourceVersion = rv
	return v
}

func (d *testJournal) read() journal.Revision {
	d.t.Helper()
	v, err := d.store.Read(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return v
}

func (d *testJournal) lease() *coordinationv1.Lease {
	d.t.Helper()
	l, err := d.client.CoordinationV1().Leases(d.namespace).Get(d.t.Context(), journal.LeaseName, metav1.GetOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return l
}

func (d *testJournal) update(l *coordinationv1.Lease) {
	d.t.Helper()
	if _, err := d.client.CoordinationV1().Leases(d.namespace).Update(d.t.Context(), l, metav1.UpdateOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// taken is a session that holds the journal.
func (d *testJournal) taken() *journal.Session {
	d.t.Helper()
	s := journal.NewSession(d.store, "a", nil, journal.Timing{})
	if _, err := s.Follow(d.t.Context(), func(journal.Revision, error) {}); err != nil {
		d.t.Fatal(err)
	}
	if err := s.TakeOver(d.t.Context(), false); err != nil {
		d.t.Fatal(err)
	}
	return s
}

func snapshotOf(lines int) journal.Snapshot {
	r := journal.Snapshot{Applied: map[string]uint64{"claims.test": 42}}
	addr, _ := allocator.ParseRange("10.0.0.0-10.0.0.7")
	for i := range lines {
		r.Entries = append(r.Entries, journal.Entry{
			Token: journal.Token{byte(i), byte(i >> 8), 1}, Ranges: []allocator.Range{addr},
			Resource: "ipallocations.butler.butlerlabs.dev", Namespace: "butler-system", NameHash: uint64(i + 1),
		})
	}
	return r
}

func TestLease_RevisionRoundTrip(t *testing.T) {
	t.Parallel()
	d := newTestJournal(t)
	if v := d.read(); v.ResourceVersion != "" || v.Term != 0 {
		t.Errorf("before the first: %+v", v)
	}
	v := d.write(d.read().WithLeader("a"))
	v = d.write(v.Next(snapshotOf(3)))
	got := d.read()
	if got.ResourceVersion != v.ResourceVersion || got.Leader != "a" || got.Term != 1 || got.Commit != 2 || len(got.Entries) != 3 || got.Applied["claims.test"] != 42 {
		t.Errorf("got %+v", got)
	}
}

func TestLease_SecondWriteOfARevisionConflicts(t *testing.T) {
	t.Parallel()
	d := newTestJournal(t)
	if _, err := d.store.Write(t.Context(), d.read().WithLeader("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.Write(t.Context(), journal.Revision{}.WithLeader("b")); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("a second creation: %v", err)
	}
	v := d.read()
	d.write(v.Next(snapshotOf(1)))
	if _, err := d.store.Write(t.Context(), v.WithLeader("b")); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("a second update: %v", err)
	}
	if err := d.client.CoordinationV1().Leases(d.namespace).Delete(t.Context(), journal.LeaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.Write(t.Context(), v.WithLeader("c")); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("an update of what is gone: %v", err)
	}
}

func TestLease_LargestSnapshotFits(t *testing.T) {
	t.Parallel()
	d := newTestJournal(t)
	r := snapshotOf(6000)
	if n := len(r.Encode()); n > journal.MaxEncoded {
		t.Fatalf("6,000 lines take %d bytes, allowed are %d", n, journal.MaxEncoded)
	}
	v := d.write(d.read().WithLeader("a"))
	d.write(v.Next(r))
	if got := d.read(); len(got.Entries) != 6000 {
		t.Errorf("%d lines come back", len(got.Entries))
	}
}

func TestLease_KeepsLabelsOfOthers(t *testing.T) {
	t.Parallel()
	d := newTestJournal(t)
	d.write(d.read().WithLeader("a"))
	l := d.lease()
	l.Labels = map[string]string{"backup": "no"}
	d.update(l)
	d.write(d.read().Next(snapshotOf(1)))
	if got := d.lease(); got.Labels["backup"] != "no" || *got.Spec.HolderIdentity != "a" || *got.Spec.LeaseTransitions != 1 {
		t.Errorf("got %+v", got)
	}
}

// An earlier release reads and writes the record as before, and leaves the annotation
// with the unserved kinds as it is: its next commit makes that void.
func TestLease_NamesUnservedKinds(t *testing.T) {
	d := newTestJournal(t)
	v := journal.Revision{Leader: "a", Term: 1, Commit: 5, Snapshot: journal.Snapshot{Applied: map[string]uint64{"claims.test": 7, "vips.test": 3}, Unserved: []string{"vips.test"}}}
	d.write(v)
	read := func() []string {
		t.Helper()
		stored, err := d.store.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stored.Unserved
	}
	if got := read(); !slices.Equal(got, []string{"vips.test"}) {
		t.Errorf("unserved: %v", got)
	}
	leases := d.client.CoordinationV1().Leases(d.namespace)
	lease, err := leases.Get(t.Context(), journal.LeaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Annotations["butler.butlerlabs.dev/journal-commit"] = "6"
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := read(); len(got) > 0 {
		t.Errorf("after a commit of an earlier release: %v", got)
	}
}

func TestLease_HasNoManagedFields(t *testing.T) {
	t.Parallel()
	d := newTestJournal(t)
	v := d.write(d.read().WithLeader("a"))
	for i := range 2 {
		v = d.write(v.Next(snapshotOf(i)))
		if fields := d.lease().ManagedFields; len(fields) > 0 {
			t.Fatalf("after commit %d the Lease has managed fields, want none: %v", v.Commit, fields)
		}
	}
}

func TestLease_WithoutAJournalMeansQuarantine(t *testing.T) {
	t.Parallel()
	d := newTestJournal(t)
	d.write(d.read().WithLeader("a").Next(snapshotOf(1)))
	l := d.lease()
	l.Annotations = nil
	d.update(l)
	if v := d.read(); !v.Quarantine || v.Leader != "" {
		t.Errorf("got %+v", v)
	}
	l = d.lease()
	l.Annotations = map[string]string{"butler.butlerlabs.dev/journal": "AAAA"}
	d.update(l)
	if v, err := d.store.Read(t.Context()); err == nil {
		t.Errorf("a record that does not parse is read as %+v", v)
	}
}

// The leader gets an error at the next commit, which names the remedy.
func TestSession_CorruptJournalEndsTheTerm(t *testing.T) {
	t.Parallel()
	for annotation, says := range map[string]string{
		"butler.butlerlabs.dev/journal":        "butler.butlerlabs.dev/journal: journal is corrupt",
		"butler.butlerlabs.dev/journal-commit": "butler.butlerlabs.dev/journal-commit: journal is corrupt",
	} {
		d := newTestJournal(t)
		s := d.taken()
		l := d.lease()
		if _, there := l.Annotations[annotation]; !there {
			t.Fatalf("%s is not among %v", annotation, l.Annotations)
		}
		l.Annotations[annotation] = "garbage"
		d.update(l)
		if err := s.Commit(t.Context(), snapshotOf(1)); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "delete the Lease") {
			t.Errorf("got %v", err)
		}
	}
}

func TestSession_SurvivesAPIServerRestart(t *testing.T) {
	d := newTestJournal(t)
	s := d.taken()
	if err := box.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	<-box.APIServer().Exited()
	committed := make(chan error, 1)
	go func() { committed <- s.Commit(t.Context(), snapshotOf(5)) }()
	if err := box.APIServer().Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if v := d.read(); v.Commit != 2 || len(v.Entries) != 5 {
		t.Errorf("got %+v", v)
	}
}

func namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "journal-"}}
}
