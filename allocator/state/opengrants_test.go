package state

import (
	"testing"

	"butlerlabs.dev/ipam/allocator/journal"
)

// A grant that is withdrawn while its commit is in flight ends when the commit has
// landed; a grant of an omitted resource stays queued.
func TestOpenGrants_CommitOfSeveral(t *testing.T) {
	o := newOpenGrants()
	grant := func(token byte, resource string) *OpenGrant {
		g := &OpenGrant{Entry: journal.Entry{Token: journal.Token{token}, Resource: resource}}
		o.add(g)
		return g
	}
	kept, withdrawn, omitted := grant(1, modelClaims), grant(2, modelClaims), grant(3, modelOthers)
	committed := make(chan error, 1)
	kept.NotifyCommit(committed)
	entries, resources := o.commitBegins(func(resource string) bool { return resource == modelOthers })
	if len(entries) != 2 || len(resources) != 1 || o.awaitCommit() != 1 {
		t.Fatalf("%d entries of %v, %d grants await a commit", len(entries), resources, o.awaitCommit())
	}
	late := grant(4, modelClaims)
	withdrawn.withdrawn = true
	o.commitLands(modelStart, o.remove)
	if len(committed) != 1 || kept.AwaitsCommit() || !kept.lifeBegan.Equal(modelStart) {
		t.Error("the commit of the first grant has not landed")
	}
	if o.isOpen(withdrawn) || !o.isOpen(kept) || o.find(withdrawn.Token) != nil {
		t.Error("the withdrawn grant is open, or the first grant is not")
	}
	if !late.AwaitsCommit() || !omitted.AwaitsCommit() || o.awaitCommit() != 2 {
		t.Errorf("%d grants await a commit, want the late and the omitted one", o.awaitCommit())
	}
	o.remove(late)
	o.remove(omitted)
	if err := o.check(); err != nil || o.number() != 1 || o.awaitCommit() != 0 {
		t.Errorf("%v; %d grants are open, %d await a commit", err, o.number(), o.awaitCommit())
	}
}
