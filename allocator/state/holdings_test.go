package state

import (
	"testing"

	"butlerlabs.dev/ipam/allocator"
)

// A holding is found by its ID, its claim and its admission request until it is removed,
// and its ID is not used again.
func TestHoldings_AreFoundUntilRemoved(t *testing.T) {
	s := newHoldings()
	next := s.nextID()
	h := s.add(Key{Resource: modelClaims, Namespace: "ns"}, modelPool, "", []allocator.Range{mustRange("10.0.0.1")})
	s.reserveFor(h, "request")
	if h.id != next || s.find(next) != h || s.ofRequest("request") != h || s.ofRequest("") != nil {
		t.Error("the holding of the request is not found")
	}
	s.endRequest(h)
	s.moveTo(h, key("a"))
	other := s.add(key("a"), modelPool, "", []allocator.Range{mustRange("10.0.0.2")})
	if list := s.of(key("a")); len(list) != 2 || s.ofRequest("request") != nil {
		t.Errorf("%d holdings of the claim", len(list))
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
	s.remove(h)
	if list := s.of(key("a")); s.has(h) || len(list) != 1 || list[0] != other || s.nextID() <= other.id {
		t.Errorf("after the removal: %d holdings of the claim, next ID %d", len(list), s.nextID())
	}
	s.remove(other)
	if err := s.check(); err != nil || len(s.byKey) != 0 {
		t.Errorf("%v; %d keys", err, len(s.byKey))
	}
}
