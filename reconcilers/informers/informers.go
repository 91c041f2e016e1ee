// Package informers makes informers that continue within seconds after an outage of the
// API server. The informers of client-go wait longer after each failed call, up to a
// minute, and cannot be interrupted: after an outage of 45 s, claims got their status 90
// s after the end of the outage.
package informers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

const (
	// askAgain is the pause between two attempts to reach an API server that does not
	// respond. Up to half a pause is added at random, so that clients do not retry
	// together.
	askAgain, askJitter = time.Second, 0.5
	// sayAgain is the least time between two log lines about an API server that does not
	// respond.
	sayAgain = time.Minute
	// settling is how long an API server may deny calls after its start, because the API
	// server has not read the roles.
	settling = 5 * time.Second
)

// New returns a replacement of toolscache.NewSharedIndexInformer for the Options of a
// controller-runtime cache. optional has an object of each optional kind: the informers
// of these kinds are of type Optional.
func New(log logr.Logger, optional ...runtime.Object) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		log := log.WithName("informers").WithValues("of", nameOf(of))
		p := persistent{lw, toolscache.ToListerWatcherWithContext(lw), log}
		if !slices.ContainsFunc(optional, func(o runtime.Object) bool { return reflect.TypeOf(o) == reflect.TypeOf(of) }) {
			return toolscache.NewSharedIndexInformer(p, of, resync, indexers)
		}
		o := &Optional{calls: p, log: log}
		o.SharedIndexInformer = toolscache.NewSharedIndexInformer(optionalCalls{p, o}, of, resync, indexers)
		return o
	}
}

// nameOf returns the kind of an object: the group, version and kind of an object without
// a Go type, else the Go type.
func nameOf(o runtime.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind(); !kind.Empty() {
		return kind.String()
	}
	return fmt.Sprintf("%T", o)
}

// persistent repeats calls to which the API server does not respond. Error responses are
// returned to the informer.
type persistent struct {
	toolscache.ListerWatcher
	calls toolscache.ListerWatcherWithContext
	log   logr.Logger
}

// ListWithContext implements toolscache.ListerWithContext.
func (p persistent) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return callWithRetry(ctx, p.log, func() (runtime.Object, error) { return p.calls.ListWithContext(ctx, o) })
}

// WatchWithContext implements toolscache.WatcherWithContext.
func (p persistent) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return callWithRetry(ctx, p.log, func() (watch.Interface, error) { return p.calls.WatchWithContext(ctx, o) })
}

// callWithRetry repeats a call until the API server responds, or ctx ends.
func callWithRetry[T any](ctx context.Context, log logr.Logger, call func() (T, error)) (T, error) {
	var said, silent time.Time // of the last log line, and of the last call without a response
	for {
		answer, err := call()
		switch {
		case isConnectionError(err):
			silent = time.Now()
			if silent.Sub(said) >= sayAgain {
				said = silent
				log.Error(err, "The API server does not answer: it is asked each second")
			}
		case apierrors.IsForbidden(err) && time.Since(silent) < settling:
		default:
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(wait.Jitter(askAgain, askJitter)):
		}
	}
}

// isConnectionError reports whether a call failed without a response, or the API server
// responded that it is unavailable.
func isConnectionError(err error) bool {
	if err == nil {
		return false
	}
	if own := apierrors.APIStatus(nil); !errors.As(err, &own) {
		return true
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}
