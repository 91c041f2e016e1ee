package poolrecord

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func TestReadList_ReturnsTheFormattedRanges(t *testing.T) {
	parse := func(text string) allocator.Range {
		r, err := allocator.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := []ledger.RecordedRange{
		{Range: parse("10.0.0.1-10.0.0.4"), Until: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)},
		{Range: parse("10.0.0.6"), Since: time.Date(2030, 1, 2, 2, 4, 5, 1, time.UTC), Until: time.Date(2030, 1, 2, 3, 4, 5, 1, time.UTC)},
		{Range: parse("10.0.0.7"), Claim: ledger.Key{Resource: "ipclaims.ipam.metal3.io", Namespace: "ns", Name: "web"}, MovedUID: "uid"},
		{Range: parse("2001:db8::1"), Claim: ledger.Key{Resource: "ipclaims.ipam.metal3.io", Namespace: "ns", Name: "old"}},
	}
	pool := &metav1.ObjectMeta{UID: "of-pool", Annotations: map[string]string{}}
	pool.Annotations[butlerv1.AnnotationCooldown] = formatEntries(pool, want, 17)
	// Written times have the precision of a second, and no cooldown becomes shorter.
	want[1].Since, want[1].Until = time.Date(2030, 1, 2, 2, 4, 6, 0, time.UTC), time.Date(2030, 1, 2, 3, 4, 6, 0, time.UTC)
	list := ReadList(pool)
	got, readable := list.Ranges, list.Readable
	if list.Revision != 17 {
		t.Errorf("revision %d", list.Revision)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b allocator.Range) bool { return a == b }), cmp.Comparer(time.Time.Equal)); diff != "" || !readable {
		t.Errorf("readable: %t (-want +got):\n%s", readable, diff)
	}
	if again, first := formatEntries(pool, got, 17), pool.Annotations[butlerv1.AnnotationCooldown]; again != first {
		t.Errorf("formatted again: %s, want %s", again, first)
	}
	for name, text := range map[string]string{
		"no JSON":              `[`,
		"not compressed":       `gzip:W10=`,
		"no range":             `[{"range": "10.0.0.9-10.0.0.1", "claim": "k/ns/n"}]`,
		"no time and no claim": `[{"range": "10.0.0.1"}]`,
		"no claim":             `[{"range": "10.0.0.1", "claim": "web"}]`,
	} {
		pool.Annotations[butlerv1.AnnotationCooldown] = text
		if got := ReadList(pool); got.Ranges != nil || got.Readable == (name == "no JSON" || name == "not compressed") || got.Revision != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestFormatList_FitsIntoTheAnnotation(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var all []ledger.RecordedRange
	add := func(n int, entry func(r allocator.Range, i int) ledger.RecordedRange) {
		for i := range n {
			a := netip.AddrFrom4([4]byte{10, byte(len(all) >> 16), byte(len(all) >> 8), byte(len(all))})
			all = append(all, entry(allocator.Range{First: a, Last: a}, i))
		}
	}
	cooldown := func(r allocator.Range, _ int) ledger.RecordedRange {
		since := begin.Add(time.Duration(source.IntN(86400)) * time.Second)
		return ledger.RecordedRange{Range: r, Since: since, Until: since.Add(24 * time.Hour)}
	}
	moved := func(r allocator.Range, i int) ledger.RecordedRange {
		uid := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", source.Uint32(), i, source.IntN(1<<12), source.IntN(1<<12), source.Uint64N(1<<48))
		return ledger.RecordedRange{Range: r, Claim: ledger.Key{Resource: "ipaddressclaims.ipam.cluster.x-k8s.io", Namespace: "tenants", Name: fmt.Sprintf("worker-%05x", i)}, MovedUID: uid}
	}
	read := func(text string) map[allocator.Range]bool {
		found := map[allocator.Range]bool{}
		all := ReadList(&metav1.ObjectMeta{Annotations: map[string]string{butlerv1.AnnotationCooldown: text}}).Ranges
		for _, c := range all {
			found[c.Range] = true
		}
		return found
	}
	add(2000, moved)
	add(5000, cooldown)
	pool := &metav1.ObjectMeta{Annotations: map[string]string{"example.com/large": strings.Repeat("x", 64<<10), butlerv1.AnnotationCooldown: "earlier text"}}
	const room = 176 << 10
	text, omitted := FormatList(pool, all, 1)
	if found := read(text); len(text) > room || len(omitted) != 0 || len(found) != len(all) {
		t.Errorf("of %d, %d lack and %d are read, in %d bytes", len(all), len(omitted), len(found), len(text))
	}

	add(20000, cooldown)
	text, omitted = FormatList(pool, all, 1)
	found := read(text)
	if len(text) > room || len(omitted) == 0 || len(found) != len(all)-len(omitted) {
		t.Errorf("of %d, %d lack and %d are read, in %d bytes", len(all), len(omitted), len(found), len(text))
	}
	var first, last time.Time // earliest end of a listed cooldown, latest end of a cooldown left out
	for _, c := range all {
		switch {
		case c.Until.IsZero():
			if !found[c.Range] {
				t.Fatalf("%s is moved, and is left out", c.Range)
			}
		case found[c.Range] && (first.IsZero() || c.Until.Before(first)):
			first = c.Until
		case !found[c.Range] && c.Until.After(last):
			last = c.Until
		}
	}
	if first.Before(last) {
		t.Errorf("the cooldown until %s is listed, and the cooldown until %s is left out", first, last)
	}
	pool.Annotations["example.com/large"] = strings.Repeat("x", 256<<10)
	if text, omitted := FormatList(pool, all, 1); text != "" || len(omitted) != len(all) {
		t.Errorf("without room %d of %d lack, in %d bytes", len(omitted), len(all), len(text))
	}
	if _, err := readEntries(text[:len(text)/2]); err == nil {
		t.Error("half of a text decodes")
	}
}

// Without the bound a client that may write to a pool could exhaust the memory of every
// replica with a short text.
func TestReadList_BoundsMemory(t *testing.T) {
	for _, unit := range []string{`0,`, `{},`, `{"range":"10.0.0.1","claim":"a/b/c"},`, `[[[[`, `{"range":"` + strings.Repeat("1", 1<<20) + `"},`} {
		text := compress("[" + strings.Repeat(unit, (16<<20)/len(unit)) + "{}]")
		pool := &metav1.ObjectMeta{Annotations: map[string]string{butlerv1.AnnotationCooldown: text}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		list := ReadList(pool)
		all, readable := list.Ranges, list.Readable
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; readable || len(all) > 0 || took > 64 {
			t.Errorf("%d bytes of %.40q: %d entries, readable: %t, %d MB allocated", len(text), unit, len(all), readable, took)
		}
	}
}

// A missing range counts as removed by a person only in a list of the same pool, of which
// every entry can be decoded.
func TestReadList_Revision(t *testing.T) {
	range1 := `{"range": "10.0.0.1", "claim": "k/ns/n"}`
	for name, tc := range map[string]struct {
		text string
		want uint64
	}{
		"none":                        {"", 0},
		"of the same pool":            {`[{"range": "", "pool": "of-pool", "revision": "00000000000000000017"}, ` + range1 + `]`, 17},
		"all ranges removed":          {`[{"range": "", "pool": "of-pool", "revision": "17"}]`, 17},
		"of another pool":             {`[{"range": "", "pool": "other", "revision": "17"}, ` + range1 + `]`, 0},
		"of an earlier release":       {`[` + range1 + `]`, 0},
		"emptied":                     {`[]`, ledger.EmptiedList},
		"an entry cannot be read":     {`[{"range": "", "pool": "of-pool", "revision": "17"}, {"range": "10.0.0"}]`, 0},
		"the revision cannot be read": {`[{"range": "", "pool": "of-pool", "revision": "new"}]`, 0},
		"cannot be decoded":           {`[{"range": "", "pool": "of-pool", "revision": "17"}`, 0},
	} {
		pool := &metav1.ObjectMeta{UID: "of-pool", Annotations: map[string]string{butlerv1.AnnotationCooldown: tc.text}}
		if got := ReadList(pool); got.Revision != tc.want {
			t.Errorf("%s: revision %d, want %d", name, got.Revision, tc.want)
		}
	}
}

func TestParseMoved_ReturnsTheFormattedRanges(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.1")
	want := []ledger.Moved{
		{Range: allocator.Range{First: a, Last: a}, Claim: ledger.Key{Resource: "k", Namespace: "ns", Name: "n"}, MovedUID: "uid", ListedSince: 3, IgnoreListsUntil: 2},
		{Range: allocator.Range{First: a, Last: netip.MustParseAddr("10.0.0.9")}, Claim: ledger.Key{Resource: "k", Namespace: "ns", Name: "m"}},
	}
	got, err := ParseMoved(FormatMoved(want))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "[", `[{"range": "10.0.0"}]`} {
		if got, err := ParseMoved(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
