package state

import (
	"slices"
	"testing"

	"butlerlabs.dev/ipam/allocator"
)

// The event of a claim or pool reports the object as changed, although a list of the API
// server has shown the version or the deletion before: reconciles before the event have
// seen an older object.
func TestEvent_OfAListedObjectReportsItAsChanged(t *testing.T) {
	s := newTestState(t)
	listed := Claim{Key: key("listed"), UID: "listed", ResourceVersion: 100, Pool: modelPool, Ranges: []allocator.Range{mustRange("10.0.0.1")}}
	pool := s.pools.find(modelPool).Pool
	pool.ResourceVersion = 101
	s.ReplaceClaims(s.now, modelClaims, []ListedClaim{{UID: listed.UID, ResourceVersion: listed.ResourceVersion, Convert: func() Claim { return listed }}})
	s.ReplacePools(s.now, modelPools, []Pool{pool})
	for what, event := range map[Key]func(){
		listed.Key: func() { s.ObserveClaim(s.now, listed) },
		modelPool:  func() { s.ObservePool(s.now, pool) },
	} {
		s.TakeChanged()
		event()
		if changed := s.TakeChanged(); !slices.Contains(changed, what) {
			t.Errorf("after the event of %s: %v", what, changed)
		}
	}
	older := listed
	older.ResourceVersion--
	s.ObserveClaim(s.now, older)
	pool.ResourceVersion--
	s.ObservePool(s.now, pool)
	if changed := s.TakeChanged(); len(changed) > 0 {
		t.Errorf("after events of older versions: %v", changed)
	}

	s.ReplaceClaims(s.now, modelClaims, nil)
	s.ReplacePools(s.now, modelPools, nil)
	for what, event := range map[Key]func(){
		listed.Key: func() { s.RemoveClaim(s.now, listed, 102) },
		modelPool:  func() { s.RemovePool(modelPool, 103) },
	} {
		s.TakeChanged()
		event()
		if changed := s.TakeChanged(); !slices.Contains(changed, what) {
			t.Errorf("after the delete event of %s, which a list lacked: %v", what, changed)
		}
	}
}
