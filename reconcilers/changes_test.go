package reconcilers

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"butlerlabs.dev/ipam/allocator/ledger"
)

func TestGathering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const delay = 20 * time.Millisecond
		var handed []string
		g := gathering{delay: delay, hand: func(k ledger.Key) { handed = append(handed, k.Name) }}
		add := func(names ...string) {
			for _, name := range names {
				g.add([]ledger.Key{{Kind: "A", Name: name}, {Kind: "B", Name: name + " of a kind that nobody wants"}}, func(k ledger.Key) bool { return k.Kind == "A" })
			}
		}
		after := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			slices.Sort(handed)
			if !slices.Equal(handed, want) {
				t.Fatalf("%q were handed on, want %q", strings.Join(handed, ", "), strings.Join(want, ", "))
			}
			handed = nil
		}
		add("a", "b")
		after(delay / 2)
		add("c", "a")
		after(delay/2, "a", "b", "c")
		after(10 * delay)
		add("a")
		after(delay, "a")
	})
}
