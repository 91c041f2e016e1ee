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

// refusedAgain is the time between two tries to read a kind that is not served, or may not be read, and half as much again at most.
const refusedAgain = 5 * time.Second

// Optional is an informer of a kind that the API server may not serve, or may not let this process read, now or later. It is synced as soon as that
// is known:
//
//	the API server              the store
//	serves the kind             follows it
//	does not serve the kind     is empty: the CRD is missing, or was deleted with all objects
//	denies reading              stays as it was, empty at the beginning
type Optional struct {
	toolscache.SharedIndexInformer
	calls persistent
	log   logr.Logger

	mu     sync.Mutex
	absent bool
	denied error
	listed bool // the store has been filled once
}

// Reading reports whether the API server does not serve the kind, and why it denies reading the kind, nil where it does not.
func (i *Optional) Reading() (absent bool, denied error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.absent, i.denied
}

// learn records an answer of the API server, and reports whether an empty store is what it means. The first of two refusals may be that of an API server
// that has just started, which knows neither all rights nor all kinds.
func (i *Optional) learn(err error, again bool) (empty bool) {
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

// optionalCalls are the calls of an Optional's reflector.
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
				c.of.learn(nil, true)
			}
			return list, err
		}
		if c.of.learn(err, again) {
			return &metav1.List{}, nil
		}
		if pause(ctx) != nil {
			return nil, errListAnew
		}
	}
}

// WatchWithContext implements toolscache.WatcherWithContext. It returns an error where the store is to be listed anew: the API server shows the kind again,
// or does not serve it any more.
func (c optionalCalls) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	absent, denied := c.of.Reading()
	refused := absent || denied != nil
	streams := o.SendInitialEvents != nil && *o.SendInitialEvents // in the place of a list, which follows where it fails
	if streams && refused {                                       // a list learns more, and is what the reflector makes then
		return nil, errNoStream
	}
	for again := false; ; again = true {
		w, err := c.persistent.WatchWithContext(ctx, o)
		switch {
		case err == nil && (refused || again):
			w.Stop()
			return nil, errListAnew
		case err == nil:
			c.of.learn(nil, true)
			return w, nil
		case streams || !isRefusal(err):
			return nil, err
		case apierrors.IsForbidden(err):
			c.of.learn(err, again)
		default:
			if absent, _ := c.of.Reading(); !absent { // also where it was, and an API server that has just started denied it meanwhile
				return nil, errListAnew
			}
		}
		if pause(ctx) != nil {
			return nil, errListAnew
		}
	}
}

// errListAnew makes a reflector list again, or end with its context, without a line in the log.
var errListAnew = apierrors.NewResourceExpired("the API server shows the kind again, or does not serve it any more")

// errNoStream makes a reflector list instead. After errListAnew it would try to stream again.
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
