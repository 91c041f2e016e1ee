package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/reconcilers/work"
)

// tries spaces the tries to answer claims to which the answer cannot be written. Each costs a commit of the journal, and a grant that stays open
// for its life where nobody knows what became of the write. The zero value is ready.
type tries struct {
	mu   sync.Mutex
	next map[types.NamespacedName]try // claim ->
}

type try struct {
	due   time.Time
	pause time.Duration // before it
}

// secondTry comes so long after the first; the pauses grow to work.LastRetry.
const secondTry = time.Second

// wait is how long a claim has to wait for its next try.
func (t *tries) wait(claim types.NamespacedName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.next[claim].due.Sub(now))
}

// pause is how long a claim that could not be answered was left alone before its next try; zero for others.
func (t *tries) pause(claim types.NamespacedName) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next[claim].pause
}

// failed puts the next try off, each time by twice as long.
func (t *tries) failed(claim types.NamespacedName, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next = map[types.NamespacedName]try{}
	}
	pause := min(max(secondTry, 2*t.next[claim].pause), work.LastRetry)
	t.next[claim] = try{now.Add(pause), pause}
}

func (t *tries) forget(claim types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.next, claim)
}

// unwritableError says that the API server will not have an answer written as things are: a policy, a quota or a missing right stands against it.
type unwritableError struct{ err error }

func (e *unwritableError) Error() string {
	return fmt.Sprintf("the addresses cannot be written to this object: %s: change what refuses it, it is tried again by itself", fields.OneLine(e.err.Error(), 1024))
}

// counted counts the requests that calls to the API server with the context it returns come to: at least those that were sent.
func counted(ctx context.Context) (context.Context, *atomic.Int32) {
	requests := &atomic.Int32{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { requests.Add(1) }}), requests
}

// refused tells whether the API server's answer to a write is that it is not stored, and will not be as things are. Webhooks of somebody's refuse with
// any code, also with those that say an object has changed or is gone: see package overtaken.
func refused(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return 400 <= code && code < 500
	}
}
