package claims

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync/atomic"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// writeAllocation writes an allocation to a stored claim: all that a create gets from the
// webhooks, in one write. An adopted claim gets no token, since nothing was granted.
func (r *Reconciler[T]) writeAllocation(ctx context.Context, c T, g ledger.Grant, origin string, b *flow.Backoff) error {
	before := write.DeepCopy(c)
	r.api.FillSpec(c, g.Ranges)
	annotations := c.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if !g.Token.IsZero() {
		annotations[v1alpha1.AnnotationGrant] = g.Token.String()
	}
	annotations[v1alpha1.AnnotationOrigin] = origin
	c.SetAnnotations(annotations)
	if r.origins != nil {
		r.origins.SetOrigin(before, c)
	}
	r.api.CompleteMetadata(c, g.RoutingDomain)
	object.RecordDomain(c, g.RoutingDomain)
	ctx, requests := countRequests(ctx)
	err := r.SaveObject(ctx, before, c)
	if err == nil {
		r.expected.ExpectVersion(c)
		return nil
	}
	if !g.Token.IsZero() && neverStored(err, requests.Load()) {
		r.Ledger.Withdraw(g.Token)
	}
	return r.handleFailedWrite(ctx, before, b, err)
}

// neverStored reports whether a failed write is not stored and never will be. Otherwise
// the ledger keeps the grant until the write can no longer be stored, or the object is
// gone. A client repeats a write without a response, and a denial is the response to its
// last request only: so one request must have been sent.
func neverStored(err error, requests int32) bool { return write.IsRefused(err) && requests == 1 }

// countRequests counts the requests of calls to the API server with the returned context:
// at least those that were sent.
func countRequests(ctx context.Context) (context.Context, *atomic.Int32) {
	requests := &atomic.Int32{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { requests.Add(1) }}), requests
}

// handleFailedWrite returns the error of a write to a claim in this version, nil if the
// version is stale, and reports a denied write in status and event.
func (r *Reconciler[T]) handleFailedWrite(ctx context.Context, c T, b *flow.Backoff, err error) error {
	if err = r.IgnoreStale(ctx, c, err); !write.IsRefused(err) {
		return err
	}
	return errors.Join(err, r.reportDenied(ctx, c, b, &DeniedError{&unwritableError{err}}))
}

// unwritableError reports that the API server denies the write of an allocation for a
// lasting reason: a policy, a quota or a missing right.
type unwritableError struct{ err error }

func (e *unwritableError) Error() string {
	return fmt.Sprintf("the addresses cannot be written to this object: %s: change the cause of the denial; the write is retried", fieldtext.SingleLine(e.err.Error(), 1024))
}
