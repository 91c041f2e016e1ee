package reconcilers

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// later is the error of what has to wait for this long, though nothing is wrong with it. At zero something else brings it back.
type later time.Duration

func (l later) Error() string { return "to be looked at again in " + time.Duration(l).String() }

// patient has an object looked at again after a while where nothing is wrong but that.
type patient struct{ reconcile.Reconciler }

func (p patient) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := p.Reconciler.Reconcile(ctx, req)
	if wait, only := waits(err); only {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return result, err
}

// waits tells whether an error says nothing but later, and how much.
func waits(err error) (time.Duration, bool) {
	var wait later
	if joined, is := err.(interface{ Unwrap() []error }); is { //nolint:errorlint // each of them is looked at
		for _, err := range joined.Unwrap() {
			w, only := waits(err)
			if !only {
				return 0, false
			}
			wait = max(wait, later(w))
		}
		return time.Duration(wait), true
	}
	return time.Duration(wait), errors.As(err, &wait)
}

// overtaken is the error of a write that a newer version of its object got ahead of, or its end. The informer brings the newer version: it is looked at
// again all the same, as a webhook of somebody's may have given that answer.
func overtaken(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return later(secondTry)
	default:
		return err
	}
}
