package fields

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

func TestWhatRestsIsReadAsItWasWritten(t *testing.T) {
	parse := func(text string) allocator.Range {
		r, err := allocator.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := []ledger.Cooling{
		{Range: parse("10.0.0.1-10.0.0.4"), Until: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)},
		{Range: parse("10.0.0.6"), Since: time.Date(2030, 1, 2, 2, 4, 5, 1, time.UTC), Until: time.Date(2030, 1, 2, 3, 4, 5, 1, time.UTC)},
		{Range: parse("10.0.0.7"), Claim: ledger.Key{Kind: "ipclaims.ipam.metal3.io", Namespace: "ns", Name: "web"}, Left: "uid"},
		{Range: parse("2001:db8::1"), Claim: ledger.Key{Kind: "ipclaims.ipam.metal3.io", Namespace: "ns", Name: "old"}},
	}
	pool := &metav1.ObjectMeta{UID: "of-pool", Annotations: map[string]string{}}
	pool.Annotations[butlerv1.AnnotationResting] = restingText(pool, want, 17)
	// What is written is not finer than a second, and no rest is shorter than it was.
	want[1].Since, want[1].Until = time.Date(2030, 1, 2, 2, 4, 6, 0, time.UTC), time.Date(2030, 1, 2, 3, 4, 6, 0, time.UTC)
	list := Resting(pool)
	got, readable := list.Ranges, list.Readable
	if list.Revision != 17 {
		t.Errorf("revision %d", list.Revision)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b allocator.Range) bool { return a == b }), cmp.Comparer(time.Time.Equal)); diff != "" || !readable {
		t.Errorf("readable: %t (-want +got):\n%s", readable, diff)
	}
	if again, first := restingText(pool, got, 17), pool.Annotations[butlerv1.AnnotationResting]; again != first {
		t.Errorf("what was read is written as %s, and was %s", again, first)
	}
	for name, text := range map[string]string{
		"no JSON":            `[`,
		"not packed":         `gzip:W10=`,
		"no range":           `[{"range": "10.0.0.9-10.0.0.1", "claim": "k/ns/n"}]`,
		"neither of the two": `[{"range": "10.0.0.1"}]`,
		"no claim":           `[{"range": "10.0.0.1", "claim": "web"}]`,
	} {
		pool.Annotations[butlerv1.AnnotationResting] = text
		if got := Resting(pool); got.Ranges != nil || got.Readable == (name == "no JSON" || name == "not packed") || got.Revision != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestManyThatRestTakeNoMoreRoomThanThereIs(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var all []ledger.Cooling
	add := func(n int, one func(r allocator.Range, i int) ledger.Cooling) {
		for i := range n {
			a := netip.AddrFrom4([4]byte{10, byte(len(all) >> 16), byte(len(all) >> 8), byte(len(all))})
			all = append(all, one(allocator.Range{First: a, Last: a}, i))
		}
	}
	rests := func(r allocator.Range, _ int) ledger.Cooling {
		since := begin.Add(time.Duration(source.IntN(86400)) * time.Second)
		return ledger.Cooling{Range: r, Since: since, Until: since.Add(24 * time.Hour)}
	}
	away := func(r allocator.Range, i int) ledger.Cooling {
		uid := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", source.Uint32(), i, source.IntN(1<<12), source.IntN(1<<12), source.Uint64N(1<<48))
		return ledger.Cooling{Range: r, Claim: ledger.Key{Kind: "ipaddressclaims.ipam.cluster.x-k8s.io", Namespace: "tenants", Name: fmt.Sprintf("worker-%05x", i)}, Left: uid}
	}
	read := func(text string) map[allocator.Range]bool {
		found := map[allocator.Range]bool{}
		all := Resting(&metav1.ObjectMeta{Annotations: map[string]string{butlerv1.AnnotationResting: text}}).Ranges
		for _, c := range all {
			found[c.Range] = true
		}
		return found
	}
	add(2000, away)
	add(5000, rests)
	pool := &metav1.ObjectMeta{Annotations: map[string]string{"example.com/large": strings.Repeat("x", 64<<10), butlerv1.AnnotationResting: "what it was"}}
	const room = 176 << 10
	text, lacking := RestingText(pool, all, 1)
	if found := read(text); len(text) > room || len(lacking) != 0 || len(found) != len(all) {
		t.Errorf("of %d, %d lack and %d are read, in %d bytes", len(all), len(lacking), len(found), len(text))
	}

	add(20000, rests)
	text, lacking = RestingText(pool, all, 1)
	found := read(text)
	if len(text) > room || len(lacking) == 0 || len(found) != len(all)-len(lacking) {
		t.Errorf("of %d, %d lack and %d are read, in %d bytes", len(all), len(lacking), len(found), len(text))
	}
	var first, last time.Time // end of what is there, and of what is not
	for _, c := range all {
		switch {
		case c.Until.IsZero():
			if !found[c.Range] {
				t.Fatalf("%s is away, and lacks", c.Range)
			}
		case found[c.Range] && (first.IsZero() || c.Until.Before(first)):
			first = c.Until
		case !found[c.Range] && c.Until.After(last):
			last = c.Until
		}
	}
	if first.Before(last) {
		t.Errorf("what rests until %s is there, and until %s is not", first, last)
	}
	pool.Annotations["example.com/large"] = strings.Repeat("x", 256<<10)
	if text, lacking := RestingText(pool, all, 1); text != "" || len(lacking) != len(all) {
		t.Errorf("without room %d of %d lack, in %d bytes", len(lacking), len(all), len(text))
	}
	if _, err := readEntries(text[:len(text)/2]); err == nil {
		t.Error("half a text can be read")
	}
}

// Who may write to a pool could take the memory of every replica with little text.
func TestARecordIsReadInBoundedMemory(t *testing.T) {
	for _, unit := range []string{`0,`, `{},`, `{"range":"10.0.0.1","claim":"a/b/c"},`, `[[[[`, `{"range":"` + strings.Repeat("1", 1<<20) + `"},`} {
		text := pack("[" + strings.Repeat(unit, (16<<20)/len(unit)) + "{}]")
		pool := &metav1.ObjectMeta{Annotations: map[string]string{butlerv1.AnnotationResting: text}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		list := Resting(pool)
		all, readable := list.Ranges, list.Readable
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; readable || len(all) > 0 || took > 64 {
			t.Errorf("%d bytes of %.40q: %d entries, readable: %t, %d MB allocated", len(text), unit, len(all), readable, took)
		}
	}
}

// The absence of a range means that a person took it out only in a list of the pool's own, all of which can be read.
func TestTheRevisionOfAList(t *testing.T) {
	range1 := `{"range": "10.0.0.1", "claim": "k/ns/n"}`
	for name, tc := range map[string]struct {
		text string
		want uint64
	}{
		"none":                        {"", 0},
		"the pool's own":              {`[{"range": "", "pool": "of-pool", "revision": "00000000000000000017"}, ` + range1 + `]`, 17},
		"all taken out":               {`[{"range": "", "pool": "of-pool", "revision": "17"}]`, 17},
		"of another pool":             {`[{"range": "", "pool": "other", "revision": "17"}, ` + range1 + `]`, 0},
		"of a release before":         {`[` + range1 + `]`, 0},
		"emptied":                     {`[]`, ledger.AllListed},
		"an entry cannot be read":     {`[{"range": "", "pool": "of-pool", "revision": "17"}, {"range": "10.0.0"}]`, 0},
		"the revision cannot be read": {`[{"range": "", "pool": "of-pool", "revision": "new"}]`, 0},
		"cannot be read":              {`[{"range": "", "pool": "of-pool", "revision": "17"}`, 0},
	} {
		pool := &metav1.ObjectMeta{UID: "of-pool", Annotations: map[string]string{butlerv1.AnnotationResting: tc.text}}
		if got := Resting(pool); got.Revision != tc.want {
			t.Errorf("%s: revision %d, want %d", name, got.Revision, tc.want)
		}
	}
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.1")
	want := []ledger.Moved{
		{Range: allocator.Range{First: a, Last: a}, Claim: ledger.Key{Kind: "k", Namespace: "ns", Name: "n"}, Left: "uid", Shown: 3, Hidden: 2},
		{Range: allocator.Range{First: a, Last: netip.MustParseAddr("10.0.0.9")}, Claim: ledger.Key{Kind: "k", Namespace: "ns", Name: "m"}},
	}
	got, err := ReadMoved(MovedText(want))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "[", `[{"range": "10.0.0"}]`} {
		if got, err := ReadMoved(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
