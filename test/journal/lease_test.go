package journal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

var box *sandbox.Sandbox

func TestMain(m *testing.M) {
	suite.Main(m, sandbox.Options{}, func(_ context.Context, s *sandbox.Sandbox) error {
		box = s
		return nil
	})
}

// desk is a journal in a namespace of its own.
type desk struct {
	t         *testing.T
	store     *journal.LeaseStore
	client    kubernetes.Interface
	namespace string
}

func newDesk(t *testing.T) *desk {
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
	return &desk{t: t, store: store, client: client, namespace: ns.Name}
}

func (d *desk) write(v journal.Version) journal.Version {
	d.t.Helper()
	rv, err := d.store.Write(d.t.Context(), v)
	if err != nil {
		d.t.Fatal(err)
	}
	v.ResourceVersion = rv
	return v
}

func (d *desk) read() journal.Version {
	d.t.Helper()
	v, err := d.store.Read(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return v
}

func (d *desk) lease() *coordinationv1.Lease {
	d.t.Helper()
	l, err := d.client.CoordinationV1().Leases(d.namespace).Get(d.t.Context(), journal.LeaseName, metav1.GetOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return l
}

func (d *desk) update(l *coordinationv1.Lease) {
	d.t.Helper()
	if _, err := d.client.CoordinationV1().Leases(d.namespace).Update(d.t.Context(), l, metav1.UpdateOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// taken is a session that holds the journal.
func (d *desk) taken() *journal.Session {
	d.t.Helper()
	s := journal.NewSession(d.store, "a", nil, journal.Timing{})
	if _, err := s.Follow(d.t.Context(), func(journal.Version, error) {}); err != nil {
		d.t.Fatal(err)
	}
	if err := s.Fence(d.t.Context(), false); err != nil {
		d.t.Fatal(err)
	}
	return s
}

func record(lines int) journal.Record {
	r := journal.Record{Seen: map[string]uint64{"claims.test": 42}}
	addr, _ := allocator.ParseRange("10.0.0.0-10.0.0.7")
	for i := range lines {
		r.Lines = append(r.Lines, journal.Line{
			Token: journal.Token{byte(i), byte(i >> 8), 1}, Ranges: []allocator.Range{addr},
			Kind: "ipallocations.butler.butlerlabs.dev", Namespace: "butler-system", NameHash: uint64(i + 1),
		})
	}
	return r
}

func TestAVersionIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if v := d.read(); v.ResourceVersion != "" || v.Epoch != 0 {
		t.Errorf("before the first: %+v", v)
	}
	v := d.write(d.read().TakenOver("a"))
	v = d.write(v.Next(record(3)))
	got := d.read()
	if got.ResourceVersion != v.ResourceVersion || got.Holder != "a" || got.Epoch != 1 || got.Commit != 2 || len(got.Lines) != 3 || got.Seen["claims.test"] != 42 {
		t.Errorf("got %+v", got)
	}
}

func TestOnlyTheFirstOfTwoWritesOnOneVersionLands(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if _, err := d.store.Write(t.Context(), d.read().TakenOver("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.Write(t.Context(), journal.Version{}.TakenOver("b")); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("a second creation: %v", err)
	}
	v := d.read()
	d.write(v.Next(record(1)))
	if _, err := d.store.Write(t.Context(), v.TakenOver("b")); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("a second update: %v", err)
	}
	if err := d.client.CoordinationV1().Leases(d.namespace).Delete(t.Context(), journal.LeaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.Write(t.Context(), v.TakenOver("c")); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("an update of what is gone: %v", err)
	}
}

func TestTheLargestRecordFits(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := record(6000)
	if n := len(r.Encode()); n > journal.MaxEncoded {
		t.Fatalf("6,000 lines take %d bytes, allowed are %d", n, journal.MaxEncoded)
	}
	v := d.write(d.read().TakenOver("a"))
	d.write(v.Next(r))
	if got := d.read(); len(got.Lines) != 6000 {
		t.Errorf("%d lines come back", len(got.Lines))
	}
}

func TestWhatOthersWroteOnTheLeaseIsKept(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write(d.read().TakenOver("a"))
	l := d.lease()
	l.Labels = map[string]string{"backup": "no"}
	d.update(l)
	d.write(d.read().Next(record(1)))
	if got := d.lease(); got.Labels["backup"] != "no" || *got.Spec.HolderIdentity != "a" || *got.Spec.LeaseTransitions != 1 {
		t.Errorf("got %+v", got)
	}
}

// An earlier release reads and writes the record as before, and leaves the annotation with the unserved kinds as it is: its next commit makes that void.
func TestUnservedKindsAreNamedBesideTheRecord(t *testing.T) {
	d := newDesk(t)
	v := journal.Version{Holder: "a", Epoch: 1, Commit: 5, Record: journal.Record{Seen: map[string]uint64{"claims.test": 7, "vips.test": 3}, Unserved: []string{"vips.test"}}}
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

func TestNobodyKeepsBooksOfWhoWroteTheLease(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	v := d.write(d.read().TakenOver("a"))
	for i := range 2 {
		v = d.write(v.Next(record(i)))
		if fields := d.lease().ManagedFields; len(fields) > 0 {
			t.Fatalf("after commit %d the Lease has managed fields, want none: %v", v.Commit, fields)
		}
	}
}

func TestALeaseThatSaysNothingIsALostJournal(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write(d.read().TakenOver("a").Next(record(1)))
	l := d.lease()
	l.Annotations = nil
	d.update(l)
	if v := d.read(); !v.Quarantine || v.Holder != "" {
		t.Errorf("got %+v", v)
	}
	l = d.lease()
	l.Annotations = map[string]string{"butler.butlerlabs.dev/journal": "AAAA"}
	d.update(l)
	if v, err := d.store.Read(t.Context()); err == nil {
		t.Errorf("a record that does not parse is read as %+v", v)
	}
}

// Whoever holds it learns that at the next commit, and is told what to do.
func TestAJournalThatSomebodySpoiltEndsATerm(t *testing.T) {
	t.Parallel()
	for annotation, says := range map[string]string{
		"butler.butlerlabs.dev/journal":        "butler.butlerlabs.dev/journal: journal is corrupt",
		"butler.butlerlabs.dev/journal-commit": "butler.butlerlabs.dev/journal-commit: journal is corrupt",
	} {
		d := newDesk(t)
		s := d.taken()
		l := d.lease()
		if _, there := l.Annotations[annotation]; !there {
			t.Fatalf("%s is not among %v", annotation, l.Annotations)
		}
		l.Annotations[annotation] = "garbage"
		d.update(l)
		if err := s.Commit(t.Context(), record(1)); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "delete the Lease") {
			t.Errorf("got %v", err)
		}
	}
}

func TestASessionSurvivesARestartOfTheAPIServer(t *testing.T) {
	d := newDesk(t)
	s := d.taken()
	if err := box.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	<-box.APIServer().Exited()
	committed := make(chan error, 1)
	go func() { committed <- s.Commit(t.Context(), record(5)) }()
	if err := box.APIServer().Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if v := d.read(); v.Commit != 2 || len(v.Lines) != 5 {
		t.Errorf("got %+v", v)
	}
}

func namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "journal-"}}
}
