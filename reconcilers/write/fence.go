package write

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/object"
)

// AnnotationFenced has the time of the last Fence of an object.
const AnnotationFenced = "butler.butlerlabs.dev/fenced"

// Fence updates a stored object, which it reads into o, so that no write based on an
// older version can be stored, and returns the new resourceVersion; 0 if no object with
// this UID is stored.
func Fence[T client.Object](ctx context.Context, to client.Client, live client.Reader, name client.ObjectKey, uid string, o T) (uint64, error) {
	if err := live.Get(ctx, name, o); err != nil || string(o.GetUID()) != uid {
		return 0, client.IgnoreNotFound(err)
	}
	before := DeepCopy(o)
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationFenced] = time.Now().UTC().Format(time.RFC3339Nano)
	o.SetAnnotations(annotations)
	if err := to.Patch(ctx, o, client.MergeFrom(before)); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return object.ResourceVersion(o), nil
}
