package historyrecord

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func mustRange(t *testing.T, text string) allocator.Range {
	t.Helper()
	r, err := allocator.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func instant(at time.Time) Period { return Period{Begin: at, End: at.Add(1)} }

// A time without a fraction means the whole second. Therefore the begin and the end of a
// tenure, which outputs contain as whole seconds, find the tenure.
func TestOwners_OfASecond(t *testing.T) {
	at := func(second, millisecond int) time.Time {
		return time.Date(2026, 11, 24, 15, 0, second, millisecond*int(time.Millisecond), time.UTC)
	}
	r := mustRange(t, "10.0.0.1")
	of := func(event, uid string, at time.Time) Record {
		return Record{Event: event, Time: at, UID: uid, Ranges: []allocator.Range{r}}
	}
	h := NewHistory([]Record{
		of(EventAllocated, "a", at(1, 50)), of(EventReleased, "a", at(5, 400)), of(EventAllocated, "b", at(5, 600)), of(EventReleased, "b", at(7, 0)),
	})
	for text, want := range map[string]string{
		"2026-11-24T15:00:00Z": "", "2026-11-24T15:00:01Z": "a", "2026-11-24T15:00:04Z": "a", "2026-11-24T15:00:05Z": "ab", "2026-11-24T15:00:06Z": "b", "2026-11-24T15:00:07Z": "",
		"2026-11-24T16:00:01+01:00": "a", "2026-11-24T15:00:01.000Z": "", "2026-11-24T15:00:01.050Z": "a", "2026-11-24T15:00:05.4Z": "", "2026-11-24T15:00:05,399Z": "a",
		// without a time zone, and before now
		"2026-11-24 15:00:05": "ab", "2026-11-24T15:00:06": "b", "2026-11-24 15:00": "ab", "2026-11-24T15:01": "", "0s": "b", "1s": "ab", "1h": "",
	} {
		during, err := ParsePeriod(text, at(6, 300))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, tenure := range h.Owners("", r, during) {
			got += tenure.UID
		}
		if got != want {
			t.Errorf("at %s: owners %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "now", "2026-11-24", "-1h", "5", "2026-11-24 15", "2026-11-24 15:00:00.5"} {
		if _, err := ParsePeriod(text, at(6, 0)); err == nil {
			t.Errorf("time %q is accepted", text)
		}
	}
}

// ReadLog ignores lines of other loggers, prefixes, repetitions and long lines. The last
// of consecutive releases counts.
func TestReadLog(t *testing.T) {
	record := func(second int, event, uid string) string {
		at := now.Add(time.Duration(second) * time.Second).Format(time.RFC3339)
		return fmt.Sprintf(`{"level":"info","logger":"history","msg":%q,"at":%q,"kind":"IPClaim","namespace":"ns","name":%q,"uid":%q,"ranges":["10.0.0.1"],"routingDomain":""}`, event, at, uid, uid)
	}
	log := strings.Join([]string{
		record(30, EventAllocated, "b"), "no JSON", `{"level":"info","logger":"ledger","msg":"Allocated"}`, strings.Repeat("x", 3*maxLine), "[pod/a] " + record(1, EventAllocated, "a"),
		record(2, EventAllocated, "a"), record(10, EventReleased, "a"), record(20, EventReleased, "a"), record(40, EventReleased, "b"), record(50, EventAllocated, "b"),
	}, "\n")
	h, err := ReadLog(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	r := mustRange(t, "10.0.0.1")
	for second, want := range map[int]string{0: "", 1: "a", 15: "a", 20: "", 30: "b", 39: "b", 45: "", 60: "b"} {
		got := ""
		for _, tenure := range h.Owners("", r, instant(now.Add(time.Duration(second)*time.Second))) {
			got += tenure.UID
		}
		if got != want {
			t.Errorf("at %d s: owners %q, want %q", second, got, want)
		}
	}
	if all := h.Owners("", r, Period{}); len(all) != 3 {
		t.Errorf("%d tenures, want 3: %+v", len(all), all)
	}
	if _, err := ReadLog(strings.NewReader(strings.Replace(record(1, EventAllocated, "a"), "10.0.0.1", "10.0.0", 1))); err == nil {
		t.Error("a record with a faulty range is accepted")
	}
}

// ReadObject returns the records that AppendRecords has stored. AppendRecords fills an
// object up to the limit. ReadObject returns an error for invalid records.
func TestAppendRecords(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var all []Record
	o := &butlerv1.AllocationHistory{ObjectMeta: metav1.ObjectMeta{Name: "object"}}
	const limit = 4000
	full := false
	for round := 0; !full; round++ {
		if round > 1000 {
			t.Fatal("the object is never full")
		}
		var more []Record
		for range random.IntN(20) {
			more = append(more, Record{
				Event: EventAllocated, Time: now.Add(time.Duration(len(all)+len(more)) * time.Millisecond).UTC(), Kind: "IPClaim", Namespace: "ns", Name: fmt.Sprint(random.Uint64()), UID: fmt.Sprint(random.Uint64()),
				Pool: "IPPool/ns/pool", RoutingDomain: "red", Ranges: []allocator.Range{mustRange(t, "10.0.0.1-10.0.0.9"), mustRange(t, "2001:db8::1")}, Tenant: "ns/web", Origin: "auto",
			})
		}
		compressed, n, err := AppendRecords(o.Spec.Records, more, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(compressed) > limit {
			t.Fatalf("%d bytes, more than %d", len(compressed), limit)
		}
		o.Spec.Records, all, full = compressed, append(all, more[:n]...), n == 0 && len(more) > 0
	}
	got, err := ReadObject(o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, got, cmp.Comparer(func(x, y allocator.Range) bool { return x == y })); diff != "" || len(all) < 20 {
		t.Errorf("%d records (-stored +read):\n%s", len(all), diff)
	}
	for name, broken := range map[string][]byte{"no gzip": []byte("records"), "cut": o.Spec.Records[:len(o.Spec.Records)/2], "too long": compress(make([]byte, maxLines+1))} {
		if _, err := ReadObject(&butlerv1.AllocationHistory{Spec: butlerv1.AllocationHistorySpec{Records: broken}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
