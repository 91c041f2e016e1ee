package informers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// refusedAgain is the pause between two attempts to read a resource that is not served,
// or whose reading is denied. Up to half a pause is added at random.
const refusedAgain = 5 * time.Second

// Optional is an informer of a kind that the API server may not serve, or may not let
// this process read, now or later. The informer is synced once the API server has
// responded:
//
//	the API server              the store
//	serves the kind             has the objects
//	does not serve the kind     is empty: the CRD is missing, or was deleted with the objects
//	denies reading              keeps its content; at the beginning the store is empty
type Optional struct {
	toolscache.SharedIndexInformer
	calls persistent
	log   logr.Logger

	mu     sync.Mutex
	absent bool
	denied error
	listed bool // the store has been filled once
}

// ReadAccess returns whether the API server does not serve the resource, or denies
// reading it.
func (i *Optional) ReadAccess() (absent bool, denied error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.absent, i.denied
}

// recordResult records a response of the API server, and reports whether the response
// makes the store empty. again is true for a repeated call: a first denial may come from
// an API server that has just started, and has read neither the roles nor the CRDs.
func (i *Optional) recordResult(err error, again bool) (empty bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	absent, denied := i.absent, i.denied != nil
	switch {
	case err == nil:
		i.absent, i.denied, i.listed = false, nil, true
		if absent || denied {
			i.log.Info("The API server shows the kind again")
		}
	case apierrors.IsNotFound(err) && (again || !i.listed):
		i.absent, i.denied, i.listed = true, nil, false
		if !absent {
			i.log.Info("The API server does not serve the kind: there are no objects of it")
		}
		return true
	case apierrors.IsForbidden(err) && again:
		i.absent, i.denied = false, err
		if !denied {
			i.log.Error(err, "The API server denies reading: it is asked again each few seconds")
		}
		return !i.listed
	}
	return false
}

// optionalCalls has the calls of the reflector of an Optional.
type optionalCalls struct {
	persistent
	of *Optional
}

// ListWithContext implements toolscache.ListerWithContext.
func (c optionalCalls) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	for again := false; ; again = true {
		list, err := c.persistent.ListWithContext(ctx, o)
		if !isRefusal(err) {
			if err == nil {
				c.of.recordResult(nil, true)
			}
			return list, err
		}
		if c.of.recordResult(err, again) {
			return &metav1.List{}, nil
		}
		if pause(ctx) != nil {
			return nil, errListAnew
		}
	}
}

// WatchWithContext implements toolscache.WatcherWithContext. WatchWithContext returns an
// error if the reflector must list again: the API server serves the resource again, or
// has stopped to serve the resource.
func (c optionalCalls) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	absent, denied := c.of.ReadAccess()
	refused := absent || denied != nil
	streams := o.SendInitialEvents != nil && *o.SendInitialEvents // instead of a list; after a failed stream the reflector lists
	if streams && refused {                                       // the response to a list tells a missing CRD from a denial
		return nil, errNoStream
	}
	for again := false; ; again = true {
		w, err := c.persistent.WatchWithContext(ctx, o)
		switch {
		case err == nil && (refused || again):
			w.Stop()
			return nil, errListAnew
		case err == nil:
			c.of.recordResult(nil, true)
			return w, nil
		case streams || !isRefusal(err):
			return nil, err
		case apierrors.IsForbidden(err):
			c.of.recordResult(err, again)
		default:
			if absent, _ := c.of.ReadAccess(); !absent { // or the CRD was missing before, and an API server that has just started denied reading since
				return nil, errListAnew
			}
		}
		if pause(ctx) != nil {
			return nil, errListAnew
		}
	}
}

// errListAnew makes a reflector list again without a log line, or end if the context has
// ended.
var errListAnew = apierrors.NewResourceExpired("the API server shows the kind again, or does not serve it any more")

// errNoStream makes a reflector list instead of stream. After errListAnew the reflector
// would try to stream again.
var errNoStream = errors.New("the kind could not be read: it is listed, not streamed")

func isRefusal(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) }

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait.Jitter(refusedAgain, askJitter)):
		return nil
	}
}
