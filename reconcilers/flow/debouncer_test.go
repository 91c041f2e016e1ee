package flow

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"butlerlabs.dev/ipam/allocator/ledger"
)

func TestDebouncer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const delay = 20 * time.Millisecond
		var delivered []string
		g := Debouncer{Delay: delay, Deliver: func(k ledger.Key) { delivered = append(delivered, k.Name) }}
		add := func(names ...string) {
			for _, name := range names {
				g.Add([]ledger.Key{{Resource: "A", Name: name}, {Resource: "B", Name: name + " of an unwanted resource"}}, func(k ledger.Key) bool { return k.Resource == "A" })
			}
		}
		after := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			slices.Sort(delivered)
			if !slices.Equal(delivered, want) {
				t.Fatalf("%q were delivered, want %q", strings.Join(delivered, ", "), strings.Join(want, ", "))
			}
			delivered = nil
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
