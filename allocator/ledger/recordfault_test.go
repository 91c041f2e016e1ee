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
)

var errRecordsDenied = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no right"))

// Without the right to read the records of moved ranges nobody leads for the life of a grant, and then by the lists of the pools. When the right is back
// the records count again.
func TestRecords_Denied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &stores{denied: errRecordsDenied}
		l, stop := starting(t, &shelf{}, "a", source)
		defer stop()
		time.Sleep(DefaultGrantLife - 10*time.Second)
		if l.Serving() {
			t.Fatal("a replica leads without the records, before the life of a grant has passed")
		}
		time.Sleep(20 * time.Second)
		if !l.Serving() {
			t.Fatal("a missing right stops all allocation for longer than the life of a grant")
		}
		if text := strings.Join(l.Warnings(), ""); !strings.Contains(text, "configmaps: the API server denies") {
			t.Errorf("it warns of %q", text)
		}
		source.keep([]Record{{Pool: modelPool, UID: "pool", Fault: errors.New("broken")}}, nil)
		time.Sleep(2 * tellEvery)
		refusedByRecord(t, l)
		source.keep(nil, nil)
		time.Sleep(2 * tellEvery)
		if _, err := l.Grant(t.Context(), request("x")); err != nil {
			t.Errorf("after the record was corrected: %v", err)
		}
	})
}

// A record that cannot be read stops its own pool alone, until it is corrected.
func TestRecords_Fault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &stores{records: []Record{{Pool: modelPool, UID: "pool", Fault: errors.New("broken")}, {UID: "another", Fault: errors.New("broken too")}}}
		l, stop := starting(t, &shelf{}, "a", source)
		defer stop()
		time.Sleep(10 * time.Second)
		if !l.Serving() {
			t.Fatal("a broken record stops all allocation")
		}
		refusedByRecord(t, l)
		other := request("y")
		other.Pool = Key{Kind: modelPool.Kind, Namespace: modelPool.Namespace, Name: "other"}
		l.SetPool(Pool{Key: other.Pool, UID: "other", ResourceVersion: 2, Window: []allocator.Range{mustRange("10.0.1.0-10.0.1.99")}})
		if _, err := l.Grant(t.Context(), other); err != nil {
			t.Errorf("another pool: %v", err)
		}
		source.keep(nil, nil)
		time.Sleep(2 * tellEvery)
		if _, err := l.Grant(t.Context(), request("x")); err != nil {
			t.Errorf("after the record was corrected: %v", err)
		}
	})
}

func refusedByRecord(t *testing.T, l *Ledger) {
	t.Helper()
	_, err := l.Grant(t.Context(), request("x"))
	if down := (*NotServingError)(nil); !errors.As(err, &down) || !down.Here || !strings.Contains(err.Error(), "broken") {
		t.Errorf("want a pause that names the record, got %v", err)
	}
}
