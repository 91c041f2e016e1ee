package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
)

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
