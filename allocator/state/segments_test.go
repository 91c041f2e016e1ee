package state

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// checkSegments verifies that the segments of each pool are its addresses, each once, and
// that the owner and the rivals of an owned segment are all stored claims that name its
// addresses.
func (s *State) checkSegments() error {
	for k, p := range s.pools.byKey {
		var covered []allocator.Range
		segments := s.Segments(p.RoutingDomain, p.Window)
		for n, g := range segments {
			covered = append(covered, g.Range)
			if n > 0 && segments[n-1].Range.Last.Compare(g.Range.First) >= 0 {
				return fmt.Errorf("pool %s: the segments %v and %v are not in address order", k, segments[n-1], g)
			}
			if n > 0 && segments[n-1].Range.Last.Next() == g.Range.First && g.State == SegmentOwned && segments[n-1].State == SegmentOwned &&
				s.holdingAt(p.RoutingDomain, segments[n-1].Range.Last) == s.holdingAt(p.RoutingDomain, g.Range.First) && slices.Equal(segments[n-1].Rivals, g.Rivals) {
				return fmt.Errorf("pool %s: the segments %v and %v are one", k, segments[n-1], g)
			}
			if g.State != SegmentOwned {
				continue
			}
			for address := range g.Range.Addresses() {
				got, want := map[Key]int{g.Object: 1}, map[Key]int{} // a replica that lags may know two objects of one name
				for _, rival := range g.Rivals {
					got[rival]++
				}
				for h := range s.holdings.all() {
					if h.claim != nil && h.routingDomain == p.RoutingDomain && slices.ContainsFunc(h.ranges, func(r allocator.Range) bool { return r.Contains(address) }) {
						want[h.claim.Key]++
					}
				}
				if !maps.Equal(got, want) {
					return fmt.Errorf("pool %s: %s of segment %v is named by %v", k, address, g, want)
				}
			}
		}
		if total := allocator.Total(p.Window); allocator.Total(covered) != total || total < 1<<20 && sumOf(covered) != total {
			return fmt.Errorf("pool %s: the segments have the addresses %v, the pool has %v", k, covered, p.Window)
		}
	}
	return nil
}

// holdingAt returns the holding that owns an address: a replica that lags may know two
// claims of one name.
func (s *State) holdingAt(routingDomain string, a netip.Addr) *holding {
	for o := range s.domain(routingDomain).core.OwnedIn(allocator.Range{First: a, Last: a}) {
		return s.holdings.find(o.OwnerID)
	}
	return nil
}

func sumOf(ranges []allocator.Range) (n int64) {
	for _, r := range ranges {
		n += r.Size()
	}
	return n
}

func TestSegments_RivalsDivideARange(t *testing.T) {
	for name, tc := range map[string]struct {
		rivals map[string]string
		want   string
	}{
		"none":   {nil, "0-5 owner"},
		"first":  {map[string]string{"a": "10.0.0.0"}, "0 owner/a, 1-5 owner"},
		"last":   {map[string]string{"a": "10.0.0.5-10.0.0.7"}, "0-4 owner, 5 owner/a, 6-7 a"},
		"middle": {map[string]string{"a": "10.0.0.2-10.0.0.3"}, "0-1 owner, 2-3 owner/a, 4-5 owner"},
		"all":    {map[string]string{"a": "10.0.0.0-10.0.0.5"}, "0-5 owner/a"},
		"two":    {map[string]string{"b": "10.0.0.1-10.0.0.3", "a": "10.0.0.3-10.0.0.4"}, "0 owner, 1-2 owner/b, 3 owner/a/b, 4 owner/a, 5 owner"},
		"nested": {map[string]string{"b": "10.0.0.0-10.0.0.5", "a": "10.0.0.2"}, "0-1 owner/b, 2 owner/a/b, 3-5 owner/b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.observeStored("owner", "10.0.0.0-10.0.0.5", journal.Token{}, ready)
			for rival, ranges := range tc.rivals {
				s.observeStored(rival, ranges, journal.Token{})
			}
			s.commit()
			var got []string
			for _, g := range s.Segments(s.pools.find(modelPool).RoutingDomain, []allocator.Range{mustRange("10.0.0.0-10.0.0.9")}) {
				if g.State != SegmentOwned {
					continue
				}
				text := strings.ReplaceAll(g.Range.String(), "10.0.0.", "") + " " + g.Owner.Name
				for _, rival := range g.Rivals {
					text += "/" + rival.Name
				}
				got = append(got, text)
			}
			if text := strings.Join(got, ", "); text != tc.want {
				t.Errorf("%s, want %s", text, tc.want)
			}
			if err := s.checkSegments(); err != nil {
				t.Error(err)
			}
		})
	}
}
