package flow

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestTurns(t *testing.T) {
	t.Parallel()
	const every = 200 * time.Millisecond
	start := time.Unix(0, 0)
	a, b, c := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}, types.NamespacedName{Name: "c"}
	turns := NewPacer(every)
	for _, step := range []struct {
		what string
		name types.NamespacedName
		at   time.Duration
		want time.Duration
	}{
		{"the first has its turn at once", a, 0, 0},
		{"who follows waits for the next", b, 50 * time.Millisecond, 150 * time.Millisecond},
		{"also when asked again", b, 120 * time.Millisecond, 80 * time.Millisecond},
		{"and shares it", c, 130 * time.Millisecond, 70 * time.Millisecond},
		{"then it has it", b, every, 0},
		{"and has to wait for another afterwards", b, every, 0}, // nothing was written since the turn began
		{"while the other still has its own", c, every + 30*time.Millisecond, 0},
		{"the first again", a, every + 40*time.Millisecond, 160 * time.Millisecond},
		{"a late one has it still", a, 10 * every, 0},
		{"after a quiet time at once", c, 20 * every, 0},
	} {
		if got := turns.Wait(step.name, start.Add(step.at)); got != step.want {
			t.Fatalf("%s: %s waits %s at %s, want %s", step.what, step.name.Name, got, step.at, step.want)
		}
	}
	turns.Wait(a, start.Add(20*every))
	turns.Forget(a)
	if len(turns.due) > 0 {
		t.Errorf("%v still wait", turns.due)
	}
}
