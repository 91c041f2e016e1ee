// Package overtaken tells a write that came too late from one that is refused with the same codes.
package overtaken

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ignore drops the error of a write to an object in this version which a newer one, or the end of the object, got ahead of: the informer brings
// that. A webhook of somebody's may give the same answers, 409 and 404, as long as nobody changes the object: then the API server, which is asked,
// has this very version, no event comes, and the error stays.
func Ignore(ctx context.Context, live client.Reader, o client.Object, err error) error {
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return err
	}
	stored := o.DeepCopyObject().(client.Object)
	switch readErr := live.Get(ctx, client.ObjectKeyFromObject(o), stored); {
	case apierrors.IsNotFound(readErr):
		return nil
	case readErr != nil:
		return readErr
	case stored.GetUID() != o.GetUID() || stored.GetResourceVersion() != o.GetResourceVersion():
		return nil
	}
	return err
}
