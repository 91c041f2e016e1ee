package fields

import (
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
	pool := &metav1.ObjectMeta{Annotations: map[string]string{butlerv1.AnnotationResting: RestingText(want)}}
	// What is written is not finer than a second, and no rest is shorter than it was.
	want[1].Since, want[1].Until = time.Date(2030, 1, 2, 2, 4, 6, 0, time.UTC), time.Date(2030, 1, 2, 3, 4, 6, 0, time.UTC)
	if diff := cmp.Diff(want, Resting(pool), cmp.Comparer(func(a, b allocator.Range) bool { return a == b }), cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again, first := RestingText(Resting(pool)), pool.Annotations[butlerv1.AnnotationResting]; again != first {
		t.Errorf("what was read is written as %s, and was %s", again, first)
	}
	for name, text := range map[string]string{
		"no JSON":            `[`,
		"no range":           `[{"range": "10.0.0.9-10.0.0.1", "claim": "k/ns/n"}]`,
		"neither of the two": `[{"range": "10.0.0.1"}]`,
		"no claim":           `[{"range": "10.0.0.1", "claim": "web"}]`,
	} {
		pool.Annotations[butlerv1.AnnotationResting] = text
		if got := Resting(pool); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}
