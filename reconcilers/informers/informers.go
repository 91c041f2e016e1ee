// Package informers makes informers that go on as soon as the API server answers again. By itself an informer waits ever longer between its tries, up to a
// minute, and nothing can tell it otherwise: after an outage of three quarters of a minute, claims had their status a minute and a half after its end.
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
	// askAgain is the time between two tries to reach an API server that does not answer, and half as much again at most: not all at once.
	askAgain, askJitter = time.Second, 0.5
	// sayAgain is the time between two lines of the log about it.
	sayAgain = time.Minute
	// settling is how long an API server that answers again may know nothing of anybody's rights.
	settling = 5 * time.Second
)

// New takes the place of toolscache.NewSharedIndexInformer, as in the Options of a controller-runtime cache. Informers of the optional kinds, given by an
// object of each, are Optional.
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

// nameOf is the kind of an object where it says so itself, as those without a Go type of their own do.
func nameOf(o runtime.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind(); !kind.Empty() {
		return kind.String()
	}
	return fmt.Sprintf("%T", o)
}

// persistent repeats calls that the API server does not answer. Errors that it answers with are the informer's.
type persistent struct {
	toolscache.ListerWatcher
	calls toolscache.ListerWatcherWithContext
	log   logr.Logger
}

// ListWithContext implements toolscache.ListerWithContext.
func (p persistent) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return answered(ctx, p.log, func() (runtime.Object, error) { return p.calls.ListWithContext(ctx, o) })
}

// WatchWithContext implements toolscache.WatcherWithContext.
func (p persistent) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return answered(ctx, p.log, func() (watch.Interface, error) { return p.calls.WatchWithContext(ctx, o) })
}

// answered repeats a call until the API server answers it, or ctx ends.
func answered[T any](ctx context.Context, log logr.Logger, call func() (T, error)) (T, error) {
	var said, silent time.Time // last
	for {
		answer, err := call()
		switch {
		case isUnanswered(err):
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

// isUnanswered tells whether an error is none of the API server's own, or says that it cannot answer now.
func isUnanswered(err error) bool {
	if err == nil {
		return false
	}
	if own := apierrors.APIStatus(nil); !errors.As(err, &own) {
		return true
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}
