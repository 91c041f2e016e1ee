package report

import (
	"fmt"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Counts returns the numbers of addresses of segments by state: "183 free in 1 block,
// largest 183", "8 owned by 1 claim".
func Counts(segments []state.Segment) []string {
	ranges, owners, largest := map[state.SegmentState][]allocator.Range{}, map[inventory.Key]bool{}, allocator.Range{}
	for _, g := range segments {
		ranges[g.State] = append(ranges[g.State], g.Range)
		switch g.State {
		case state.SegmentOwned:
			owners[g.Owner] = true
		case state.SegmentFree:
			if !largest.IsValid() || g.Range.Size() > largest.Size() {
				largest = g.Range
			}
		}
	}
	texts := []string{"0 free"}
	if free := ranges[state.SegmentFree]; len(free) > 0 {
		texts[0] = fmt.Sprintf("%s free in %s, largest %s", allocator.AmountOf(free...), allocator.Counted(len(free), "block"), allocator.AmountOf(largest))
	}
	for _, s := range []struct {
		state.SegmentState
		text string
	}{
		{state.SegmentOwned, "owned by " + allocator.Counted(len(owners), "claim")}, {state.SegmentReserved, "reserved"}, {state.SegmentCooldown, "in cooldown"},
		{state.SegmentGranted, "granted"}, {state.SegmentMoved, "moved"}, {state.SegmentWithheld, "withheld"},
	} {
		if r := ranges[s.SegmentState]; len(r) > 0 {
			texts = append(texts, allocator.AmountOf(r...)+" "+s.text)
		}
	}
	return texts
}
