package state

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// holdings are the holdings of all routing domains: every range that is not free has one.
//
// Invariants:
//
//   - a holding is listed under its ID, which no earlier holding had, and under its key
//   - a holding that is listed under an admission request is of that request
type holdings struct {
	lastID allocator.OwnerID
	byID   map[allocator.OwnerID]*holding // owner in the routing domain -> holding
	// claim -> holdings that the claim owns, was granted, or took to another cluster;
	// pool -> holdings of the ranges that updates of the pool withhold
	byKey     map[Key][]*holding
	byRequest map[string]*holding // admission request of an unnamed claim -> holding with the open grant
}

func newHoldings() holdings {
	return holdings{byID: map[allocator.OwnerID]*holding{}, byKey: map[Key][]*holding{}, byRequest: map[string]*holding{}}
}

// nextID returns the ID of the holding that is added next.
func (s *holdings) nextID() allocator.OwnerID { return s.lastID + 1 }

// add adds a holding of ranges, for a claim or the pool whose update withholds them.
func (s *holdings) add(key, pool Key, routingDomain string, ranges []allocator.Range) *holding {
	s.lastID++
	h := &holding{id: s.lastID, key: key, pool: pool, routingDomain: routingDomain, ranges: ranges}
	s.byID[h.id] = h
	s.list(h)
	return h
}

// remove removes a holding whose ranges are free.
func (s *holdings) remove(h *holding) {
	s.unlist(h)
	s.endRequest(h)
	delete(s.byID, h.id)
}

// moveTo lists a holding under the key of another claim.
func (s *holdings) moveTo(h *holding, key Key) {
	s.unlist(h)
	h.key = key
	s.list(h)
}

func (s *holdings) list(h *holding) {
	if h.key.Name != "" {
		s.byKey[h.key] = append(s.byKey[h.key], h)
	}
}

func (s *holdings) unlist(h *holding) {
	if h.key.Name == "" {
		return
	}
	remaining := slices.DeleteFunc(s.byKey[h.key], func(o *holding) bool { return o == h })
	if len(remaining) == 0 {
		delete(s.byKey, h.key)
	} else {
		s.byKey[h.key] = remaining
	}
}

// reserveFor lists a holding under the admission request to which it is granted.
func (s *holdings) reserveFor(h *holding, requestUID string) {
	h.requestUID = requestUID
	s.byRequest[requestUID] = h
}

// endRequest ends the listing under an admission request: the name of the claim is known,
// or the grant has ended.
func (s *holdings) endRequest(h *holding) { delete(s.byRequest, h.requestUID) }

// find returns the holding with an ID; nil if it was removed.
func (s *holdings) find(id allocator.OwnerID) *holding { return s.byID[id] }

// has reports whether a holding has not been removed.
func (s *holdings) has(h *holding) bool { return s.byID[h.id] == h }

// of returns the holdings of a claim, or those that withhold ranges of a pool.
func (s *holdings) of(key Key) []*holding { return s.byKey[key] }

// ofRequest returns the holding that was granted to an admission request of an unnamed
// claim; nil if there is none, or the request is not known.
func (s *holdings) ofRequest(requestUID string) *holding {
	if requestUID == "" {
		return nil
	}
	return s.byRequest[requestUID]
}

// all iterates over all holdings.
func (s *holdings) all() iter.Seq[*holding] { return maps.Values(s.byID) }

// number returns the number of holdings.
func (s *holdings) number() int { return len(s.byID) }

// check verifies the invariants.
func (s *holdings) check() error {
	for id, h := range s.byID {
		switch {
		case h.id != id || id > s.lastID:
			return fmt.Errorf("holding %d of %s is listed as %d, the last is %d", h.id, h.key, id, s.lastID)
		case h.key.Name != "" && !slices.Contains(s.byKey[h.key], h):
			return fmt.Errorf("holding %d of %s %v is not listed under its key", id, h.key, h.ranges)
		}
	}
	for key, list := range s.byKey {
		for _, h := range list {
			if h.key != key || !s.has(h) {
				return fmt.Errorf("holding %d of %s is listed under %s, or was removed", h.id, h.key, key)
			}
		}
	}
	for uid, h := range s.byRequest {
		if h.requestUID != uid || !s.has(h) {
			return fmt.Errorf("holding %d of request %q is listed under %q, or was removed", h.id, h.requestUID, uid)
		}
	}
	return nil
}
