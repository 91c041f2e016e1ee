package state

import (
	"errors"
	"testing"
)

// Each caller of NotifyOfNextCommit gets the outcome of one commit: of the next one that
// begins after the call.
func TestCommitQueue_CallersGetOneOutcome(t *testing.T) {
	q := &commitQueue{}
	first, second := make(chan error, 2), make(chan error, 2)
	q.await(first)
	q.request()
	q.requestNow()
	q.requestRead()
	if p := q.pending(); p != (Pending{Waiters: 1, Confirm: true, Commit: true, Proof: true}) {
		t.Errorf("pending: %+v", p)
	}
	q.commitBegins()
	q.await(second)
	if p := q.pending(); p != (Pending{Waiters: 1, Proof: true}) {
		t.Errorf("pending during the commit: %+v", p)
	}
	if q.check(true) != nil || q.check(false) == nil {
		t.Error("check does not depend on whether a commit is in flight")
	}
	q.commitEnds(nil)
	if len(first) != 1 || <-first != nil || len(second) != 0 {
		t.Error("the first commit has another outcome, or reached the second caller")
	}
	lost := errors.New("lost")
	q.abandon(lost)
	if len(first) != 0 || len(second) != 1 || <-second != lost {
		t.Error("the second caller got another outcome")
	}
	if p := q.pending(); p != (Pending{}) {
		t.Errorf("pending in the end: %+v", p)
	}
}
