package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// callAnnotation is on every object that a client sends, with the id of the call: so each stored one tells which call made it.
const callAnnotation = "chaos.butlerlabs.dev/call"

// call is one create: what a client asked for, and what it was told.
type call struct {
	id           string
	client       int
	name         string // "" where the API server completes it
	dryRun       bool
	pool         string          // its CIDR
	exact        allocator.Range // asked for, where valid
	count        int64           // asked for otherwise
	began, ended time.Time
	open         bool   // an attempt failed, and may have stored the object all the same
	uid          string // of the answer, as held
	held         allocator.Range
	err          error
}

// newCall is one for an allocation, which is to carry its id.
func newCall(id string, client int, a *v1alpha1.IPAllocation) *call {
	metav1.SetMetaDataAnnotation(&a.ObjectMeta, callAnnotation, id)
	c := &call{id: id, client: client, name: a.Name, exact: rangeOf(a)}
	if a.Spec.Count != nil {
		c.count = int64(*a.Spec.Count)
	}
	return c
}

// make sends the call and takes down how it ends.
func (c *call) make(ctx context.Context, a *v1alpha1.IPAllocation, send func(context.Context) error) {
	c.began = time.Now()
	c.err = send(context.WithValue(ctx, callKey{}, c))
	c.ended = time.Now()
	if c.err == nil {
		c.uid, c.held = string(a.UID), rangeOf(a)
	}
}

func (c *call) String() string {
	return fmt.Sprintf("call %s (%q, %s to %s)", c.id, c.name, c.began.Format("15:04:05.000"), c.ended.Format("15:04:05.000"))
}

// outcome is what an answered call came to.
func (c *call) outcome() string {
	if c.err != nil {
		return fmt.Sprintf("refused with %d", code(c.err))
	}
	return "given " + c.held.String()
}

// code is that of an answer, 0 where there was none.
func code(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// refused tells an answer about the object, which leaves nothing, from a failure, whose outcome is open.
func refused(err error) bool {
	c := code(err)
	return c >= 400 && c < 500 && c != http.StatusTooManyRequests
}

// refusedByOther tells whether it was the other webhook that refused a call.
func (c *call) refusedByOther() bool {
	return c.err != nil && strings.Contains(c.err.Error(), otherName)
}

func failed(err error) bool { return err != nil && !refused(err) }

// Kinds of failures.
const (
	mutatingCall   = "mutating call on the wire"
	validatingCall = "validating call on the wire"
	webhookAnswer  = "answer of a webhook"
	refusedForNow  = "refusal for now"
	storage        = "etcd"
	timeout        = "timeout"
	noAnswer       = "no answer of the API server"
	otherFailure   = "other"
)

// kind of a failure. The API server names the URL that it called where it got no answer; the two entries for an allocation that count
// here, the second mutating one and the validating one, share a name.
func kind(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "failed calling webhook") && strings.Contains(text, "/mutate-"):
		return mutatingCall
	case strings.Contains(text, "failed calling webhook") && strings.Contains(text, "/validate-"):
		return validatingCall
	case strings.Contains(text, "failed calling webhook"):
		return webhookAnswer
	case strings.Contains(text, "denied the request"):
		return refusedForNow
	case strings.Contains(text, "etcdserver"):
		return storage
	case code(err) == 0:
		return noAnswer
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), strings.Contains(text, "deadline exceeded"):
		return timeout
	default:
		return otherFailure
	}
}

// wrong says what an answer has that was not asked for; "" for a right one.
func (c *call) wrong() string {
	pool := allocator.RangeOfPrefix(netip.MustParsePrefix(c.pool))
	switch {
	case c.err != nil:
		return ""
	case !c.held.IsValid():
		return "the answer has no range"
	case !pool.Covers(c.held):
		return fmt.Sprintf("the answer says %s, outside of the pool's %s", c.held, pool)
	case c.exact.IsValid() && c.held != c.exact:
		return fmt.Sprintf("the answer says %s, asked for was %s", c.held, c.exact)
	case !c.exact.IsValid() && c.held.Size() != c.count:
		return fmt.Sprintf("the answer says %s, asked for were %d addresses", c.held, c.count)
	}
	return ""
}

type callKey struct{}

// attempts has a call know of each attempt that fails: client-go makes another where the API server answers with Retry-After.
type attempts struct{ http.RoundTripper }

func (t attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if c, is := r.Context().Value(callKey{}).(*call); is && (err != nil || response.StatusCode >= http.StatusInternalServerError) {
		c.open = true
	}
	return response, err
}
