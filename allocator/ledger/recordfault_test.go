package ledger

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
)

var errRecordsDenied = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no right"))

// Without the right to read the records of moved ranges no replica leads for one grant
// life; then a replica leads with the lists of the pools. When the right is restored, the
// records count again.
func TestRecords_Denied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{recordsErr: errRecordsDenied}
		l, stop := startReplica(t, &memoryStore{}, "a", source)
		defer stop()
		time.Sleep(DefaultGrantLife - 10*time.Second)
		if l.MayGrant() {
			t.Fatal("a replica leads without the records, before one grant life has passed")
		}
		time.Sleep(20 * time.Second)
		if !l.MayGrant() {
			t.Fatal("a missing right stops all allocation for longer than one grant life")
		}
		if text := strings.Join(l.Warnings(), ""); !strings.Contains(text, "configmaps: the API server denies") {
			t.Errorf("warnings: %q", text)
		}
		source.setRecords([]MovedRecord{{Pool: modelPool, UID: "pool", Fault: errors.New("broken")}}, nil)
		time.Sleep(2 * logEvery)
		expectDeniedByRecord(t, l)
		source.setRecords(nil, nil)
		time.Sleep(2 * logEvery)
		if _, err := l.Grant(t.Context(), request("x")); err != nil {
			t.Errorf("after the record was corrected: %v", err)
		}
	})
}

// A record that cannot be decoded stops allocation from its own pool only, until the
// record is corrected.
func TestRecords_Fault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{records: []MovedRecord{{Pool: modelPool, UID: "pool", Fault: errors.New("broken")}, {UID: "another", Fault: errors.New("broken too")}}}
		l, stop := startReplica(t, &memoryStore{}, "a", source)
		defer stop()
		time.Sleep(10 * time.Second)
		if !l.MayGrant() {
			t.Fatal("a broken record stops all allocation")
		}
		expectDeniedByRecord(t, l)
		other := request("y")
		other.Pool = Key{Resource: modelPool.Resource, Namespace: modelPool.Namespace, Name: "other"}
		l.ObservePool(Pool{Key: other.Pool, UID: "other", ResourceVersion: 2, Window: []allocator.Range{mustRange("10.0.1.0-10.0.1.99")}})
		if _, err := l.Grant(t.Context(), other); err != nil {
			t.Errorf("another pool: %v", err)
		}
		source.setRecords(nil, nil)
		time.Sleep(2 * logEvery)
		if _, err := l.Grant(t.Context(), request("x")); err != nil {
			t.Errorf("after the record was corrected: %v", err)
		}
	})
}

func expectDeniedByRecord(t *testing.T, l *Ledger) {
	t.Helper()
	_, err := l.Grant(t.Context(), request("x"))
	if down := (*NotServingError)(nil); !errors.As(err, &down) || !down.NoOtherReplica || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v, want NotServingError that names the record", err)
	}
}

// An earlier leader may write a record after the new leader has read the records. The new
// leader reads them again when such writes have ended.
func TestRecords_WrittenLateByAnEarlierLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{}
		l, stop := startLeader(t, &memoryStore{}, "a", source)
		defer stop()
		late := mustRange("10.0.0.0-10.0.0.0")
		source.setRecords([]MovedRecord{{Pool: modelPool, UID: "pool", Parts: []state.MovedRecordPart{{Name: "1", Version: "7", Moved: []Moved{{Range: late, Claim: key("moved")}}}}}}, nil)
		time.Sleep(DefaultGrantLife + 2*logEvery)
		g, err := l.Grant(t.Context(), request("x"))
		if err != nil || g.Ranges[0] == late {
			t.Errorf("got %v, %v: want an address that no record contains", g.Ranges, err)
		}
	})
}
