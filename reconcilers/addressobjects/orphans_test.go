package addressobjects

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestOrphans_CountFromTheFirstObservationOfTheTerm(t *testing.T) {
	var o orphanTimes
	start := time.Unix(1_700_000_000, 0)
	term, claim, other := start, types.NamespacedName{Name: "web"}, types.NamespacedName{Name: "other"}
	expect := func(what string, term time.Time, claim types.NamespacedName, address types.UID, now, want time.Duration) {
		t.Helper()
		if got := o.since(term, claim, address, start.Add(now)); !got.Equal(start.Add(want)) {
			t.Errorf("%s: since %s, want %s", what, got.Sub(start), want)
		}
	}
	expect("first", term, claim, "1", 0, 0)
	expect("again", term, claim, "1", time.Minute, 0)
	expect("restored later", term, claim, "2", 2*time.Minute, 2*time.Minute)
	expect("of another claim", term, other, "3", 3*time.Minute, 3*time.Minute)
	o.retain(claim, nil) // which is back
	expect("gone once more", term, claim, "1", 4*time.Minute, 4*time.Minute)
	expect("nothing of the other is forgotten", term, other, "3", 5*time.Minute, 3*time.Minute)
	expect("in another term", term.Add(time.Hour), claim, "1", 6*time.Minute, 6*time.Minute)
}
