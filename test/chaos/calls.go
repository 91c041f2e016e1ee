package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
)

// callAnnotation is on every object that a client sends, with the id of the call: so each
// stored one tells which call made it.
const callAnnotation = "chaos.butlerlabs.dev/call"

// call is one create: what a client asked for, and what it was told.
type call struct {
	id           string
	client       int
	name         string // "" where the API server completes it
	dryRun       bool
	poolName     string    // kind and name of the claim's pool, "" without one
	pool         []string  // its networks
	exact        addresses // asked for, where valid
	sizes        [2]int64  // of what is asked for
	began, ended time.Time
	open         bool   // an attempt failed, and may have stored the object all the same
	restored     bool   // the claim comes from a backup
	uid          string // of the answer, as owned
	owned        addresses
	err          error
}

// newCall is one for a claim, which is to carry its id.
func newCall(id string, client int, o client.Object) *call {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[callAnnotation] = id
	o.SetAnnotations(annotations)
	return &call{id: id, client: client, name: o.GetName(), exact: addressesOf(o), sizes: sizesOf(o)}
}

// make sends the call and takes down how it ends.
func (c *call) make(ctx context.Context, o client.Object, send func(context.Context) error) {
	c.began = time.Now()
	c.err = send(context.WithValue(ctx, callKey{}, c))
	c.ended = time.Now()
	if c.err == nil {
		c.uid, c.owned = string(o.GetUID()), addressesOf(o)
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
	return fmt.Sprintf("given %s", c.owned)
}

// code is that of an answer, 0 where there was none.
func code(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// refused tells an answer about the object, which leaves nothing, from a failure, whose
// outcome is open.
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

// kind of a failure. The API server names the URL that it called where it got no answer;
// the two entries for an allocation that count here, the second mutating one and the
// validating one, share a name.
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

// wrong says what an answer has that was not asked for; "" for a right one. Where the
// pool may have been absent, an answer may lack ranges.
func (c *call) wrong(poolAbsent bool) string {
	if c.err != nil {
		return ""
	}
	if !c.owned.some() && !poolAbsent {
		return "the answer has no range"
	}
	for i, owned := range c.owned {
		covers := func(network string) bool {
			return allocator.RangeOfPrefix(netip.MustParsePrefix(network)).Covers(owned)
		}
		switch {
		case owned.IsValid() && !slices.ContainsFunc(c.pool, covers):
			return fmt.Sprintf("the answer says %s, outside of the pool's %s", owned, strings.Join(c.pool, " and "))
		case c.exact[i].IsValid() && owned != c.exact[i]:
			return fmt.Sprintf("the answer says %s, asked for was %s", owned, c.exact[i])
		case !owned.IsValid() && poolAbsent:
		case c.sizes[i] == 0 && owned.IsValid(), c.sizes[i] > 0 && (!owned.IsValid() || owned.Size() != c.sizes[i]):
			return fmt.Sprintf("the answer says %s, asked for were %d addresses", c.owned, c.sizes[i])
		}
	}
	return ""
}

type callKey struct{}

// attempts has a call know of each attempt that fails: client-go makes another where the
// API server answers with Retry-After.
type attempts struct{ http.RoundTripper }

func (t attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if c, is := r.Context().Value(callKey{}).(*call); is && (err != nil || response.StatusCode >= http.StatusInternalServerError) {
		c.open = true
	}
	return response, err
}
