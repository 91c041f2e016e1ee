package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/historyrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/history"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

const (
	pool  = "NetworkPool/ns/pool"
	today = "2026-11-28"
)

// recordOf returns a record with a name and a UID that compress as badly as in a real
// claim.
func recordOf(n int) historyrecord.Record {
	r, _ := allocator.ParseRange(fmt.Sprintf("10.0.%d.%d", n/200%250, n%200))
	return historyrecord.Record{
		Event: historyrecord.EventAllocated, Time: time.Date(2026, 11, 28, 0, 0, n, 0, time.UTC), Kind: "IPAllocation", Namespace: "ns", Name: fmt.Sprint("claim-", n),
		UID: fmt.Sprintf("%x", n*2654435761), Pool: pool, Ranges: []allocator.Range{r},
	}
}

func recordsOf(first, n int) (list []historyrecord.Record) {
	for i := range n {
		list = append(list, recordOf(first+i))
	}
	return list
}

// The size and the number of AllocationHistories are bounded. Store returns an error only
// for the first records without room on a day. Two writers lose no record, although each
// writer has stale objects.
func TestObjects_AreBounded(t *testing.T) {
	_, c := suite.StartSandbox(t, sandbox.Options{})
	limits := history.Limits{Bytes: 2000, Parts: 4}
	first, second := history.NewObjects(c, c, sandbox.ManagerNamespace, limits), history.NewObjects(c, c, sandbox.ManagerNamespace, limits)
	read := func() (objects []butlerv1.AllocationHistory, names map[string]bool) {
		t.Helper()
		var list butlerv1.AllocationHistoryList
		if err := c.List(t.Context(), &list, client.InNamespace(sandbox.ManagerNamespace)); err != nil {
			t.Fatal(err)
		}
		names = map[string]bool{}
		for n := range list.Items {
			records, err := historyrecord.ReadObject(&list.Items[n])
			if err != nil {
				t.Fatal(err)
			}
			if size := len(list.Items[n].Spec.Records); size > limits.Bytes {
				t.Errorf("%s has %d bytes, more than %d", list.Items[n].Name, size, limits.Bytes)
			}
			for _, r := range records {
				names[r.Name] = true
			}
		}
		return list.Items, names
	}
	stored, refused := 0, 0
	for round := 0; refused < 3; round++ {
		if round > 1000 {
			t.Fatal("the objects are never full")
		}
		writer := first
		if round%2 == 1 {
			writer = second // the first writer has replaced the version that the second writer knows
		}
		left, err := writer.Store(t.Context(), pool, today, recordsOf(stored, 5), map[string]uint64{"ipallocations": uint64(round)})
		if len(left) > 0 {
			t.Fatalf("%d records are left: %v", len(left), err)
		}
		if err != nil && !strings.Contains(err.Error(), "no room") {
			t.Fatal(err)
		}
		objects, names := read()
		incomplete := 0
		for _, o := range objects {
			if o.Spec.Incomplete {
				incomplete++
			}
		}
		if incomplete == 0 {
			stored += 5
			for n := range stored {
				if !names[recordOf(n).Name] {
					t.Fatalf("round %d: the record of %s is missing", round, recordOf(n).Name)
				}
			}
			continue
		}
		if reported := err != nil; reported != (refused == 0) || len(objects) != int(limits.Parts) || incomplete != 1 {
			t.Errorf("full for the %d. time: %d objects, %d marked as incomplete, %v", refused+1, len(objects), incomplete, err)
		}
		refused++
	}
	if stored < 50 {
		t.Errorf("only %d records have room", stored)
	}
	if left, err := first.Store(t.Context(), pool, "2026-11-29", recordsOf(0, 3), nil); err != nil || len(left) > 0 {
		t.Errorf("on the next day: %d records are left, %v", len(left), err)
	}
	if recorded, err := second.Recorded(t.Context(), today, "2026-11-29"); err != nil || recorded["ipallocations"] == 0 {
		t.Errorf("recorded up to %v, %v", recorded, err)
	}

	if n, err := first.DeleteBefore(t.Context(), today); err != nil || n != 0 {
		t.Errorf("before %s: %d objects are deleted, %v", today, n, err)
	}
	if n, err := first.DeleteBefore(t.Context(), "2026-11-29"); err != nil || n != int(limits.Parts) {
		t.Errorf("%d objects are deleted, want %d: %v", n, limits.Parts, err)
	}
	objects, names := read()
	if len(objects) != 1 || len(names) != 3 {
		t.Errorf("%d objects with %d records stay, want 1 with 3", len(objects), len(names))
	}
	if left, err := first.Store(t.Context(), pool, "2026-11-29", recordsOf(10, 1), nil); err != nil || len(left) > 0 {
		t.Errorf("after the deletion: %d records are left, %v", len(left), err)
	}

	// Store accepts a long batch, long names, and records without a pool.
	long := "NetworkPool/" + strings.Repeat("n", 63) + "/" + strings.Repeat("p", 253)
	for _, pool := range []string{long, ""} {
		if left, err := second.Store(t.Context(), pool, today, recordsOf(0, 60), nil); err != nil || len(left) > 0 {
			t.Errorf("pool %q: %d records are left, %v", pool, len(left), err)
		}
	}
}

// kubectl ipam who --at finds owners in AllocationHistories without the log: deleted
// claims, and stored claims whose allocation is older than the AllocationHistories. A
// manager with a retention deletes older AllocationHistories.
func TestObjects_WhoAndRetention(t *testing.T) {
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1})
	kind := suite.Kinds[0]
	ns := suite.CreateNamespace(t, c)
	suite.Create(t, c, kind.Pool(ns, "10.60.0.0", "10.60.0.99"))
	earlier, gone := kind.Claim(ns, "earlier", "10.60.0.5"), kind.Claim(ns, "gone", "10.60.0.7")
	bind := func(o client.Object) {
		t.Helper()
		suite.Create(t, c, o)
		suite.AwaitObject(t, c, o, func(o client.Object) string {
			if !kind.Bound(o) {
				return "not bound"
			}
			return ""
		})
	}
	bind(earlier)
	if owners, message := ask(t, s, "10.60.0.5", time.Now()); len(owners) != 0 || !strings.Contains(message, "has no AllocationHistory") {
		t.Errorf("without objects: %v, %s", owners, message)
	}
	old := time.Now().UTC().AddDate(0, 0, -9)
	objects := history.NewObjects(c, c, sandbox.ManagerNamespace, history.Limits{})
	for days := range 10 {
		day := old.AddDate(0, 0, days).Format(time.DateOnly)
		if _, err := objects.Store(t.Context(), "NetworkPool/"+ns+"/deleted", day, recordsOf(days, 1), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.AddManager(t.Context(), "--history-retention-days=3"); err != nil {
		t.Fatal(err)
	}
	if err := s.Managers()[0].Kill(); err != nil { // the manager with AllocationHistories becomes the leader
		t.Fatal(err)
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		var list butlerv1.AllocationHistoryList
		if err := c.List(ctx, &list, client.InNamespace(sandbox.ManagerNamespace)); err != nil {
			return err
		}
		days := map[string]int{}
		for _, o := range list.Items {
			if strings.HasSuffix(o.Spec.Pool, "/deleted") {
				days[o.Spec.Day]++
			}
		}
		if len(days) != 4 { // today and the three days before
			return fmt.Errorf("objects of these days are stored: %v", days)
		}
		return nil
	})
	bind(gone)
	suite.AwaitText(t, func(context.Context) (string, error) {
		log, err := os.ReadFile(s.Managers()[1].LogPath())
		return string(log), err
	}, `"name":"gone"`)
	owned := time.Now()
	suite.Delete(t, c, gone)
	suite.AwaitGone(t, c, gone)
	released := time.Now()
	suite.Eventually(t, suite.Soon, func(context.Context) error { // the manager stores records every 10 s
		for _, q := range []struct {
			address string
			at      time.Time
			want    string
		}{
			{"10.60.0.5", owned, "earlier"}, {"10.60.0.7", owned, "gone"}, {"10.60.0.7", released, ""}, {"10.60.0.7", owned.Add(-time.Hour), ""},
		} {
			owners, message := ask(t, s, q.address, q.at)
			if got := strings.Join(owners, ","); got != q.want {
				return fmt.Errorf("%s at %s: %q, want %q: %s", q.address, q.at, got, q.want, message)
			}
		}
		return nil
	})
	var list butlerv1.AllocationHistoryList
	if err := c.List(t.Context(), &list, client.InNamespace(sandbox.ManagerNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		if o.Spec.Pool == "NetworkPool/"+ns+"/pool" && metav1.HasAnnotation(o.ObjectMeta, butlerv1.AnnotationHistoryRecorded) {
			return
		}
	}
	t.Errorf("no object of the pool is stored: %+v", list.Items)
}

// ask returns the names of the owners of an address at a time, and the output of the
// command.
func ask(t *testing.T, s *sandbox.Sandbox, address string, at time.Time) (names []string, message string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "../../bin/kubectl-ipam", "--kubeconfig", s.Kubeconfig(), "who", address, "--at", at.UTC().Format(time.RFC3339Nano), "-o", "json")
	out, err := command.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return nil, string(failed.Stderr)
	}
	var answer struct{ Items []struct{ Name string } }
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, item := range answer.Items {
		names = append(names, item.Name)
	}
	return names, string(out)
}
