package state

import (
	"fmt"
	"testing"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// Namespaces that use all they can, one after the other, leave room for the first entry
// of another namespace.
func TestJournalRoom_IsLeftForAnotherNamespace(t *testing.T) {
	j := newJournalRoom(&Limits{GrantLife: DefaultGrantLife, JournalBytes: 200 * usualEntryBytes})
	var all []*journal.Entry
	for n := range 30 {
		namespace := fmt.Sprint("ns", n)
		for i := 0; j.admit(namespace, usualEntryBytes) == nil; i++ {
			e := &journal.Entry{Token: journal.Token{byte(n), byte(i)}, Namespace: namespace, Resource: modelClaims, Ranges: []allocator.Range{mustRange("10.0.0.1")}}
			j.add(e)
			all = append(all, e)
		}
		if shares := j.largestShares(1); len(shares) == 0 || shares[0].Namespace != "ns0" || shares[0].Part > 1./maxShare {
			t.Fatalf("after %d namespaces: %+v, want ns0 with at most a quarter", n+1, shares)
		}
	}
	if err := j.check(all); err != nil {
		t.Error(err)
	}
	if j.admit("ns0", usualEntryBytes) == nil {
		t.Error("the first namespace has no limit")
	}
	if err := j.admit("another", usualEntryBytes); err != nil {
		t.Error(err)
	}
	if j.check(all[1:]) == nil {
		t.Error("check accepts an entry that was not removed")
	}
	for _, e := range all {
		j.remove(e)
	}
	if err := j.check(nil); err != nil || j.used != 0 {
		t.Errorf("after all are removed: %v, %d bytes", err, j.used)
	}
}
