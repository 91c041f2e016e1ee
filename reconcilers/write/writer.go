package write

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Writer writes objects that a reconciler has read and changed. It is safe for concurrent
// use.
type Writer struct {
	*StaleChecker
	client   client.Client
	statuses statusWriter
}

// NewWriter returns a writer to the API server of the client, which the live reader reads
// from.
func NewWriter(c client.Client, live client.Reader) *Writer {
	return &Writer{StaleChecker: NewStaleChecker(live), client: c}
}

// DeepCopy returns a copy of an object.
func DeepCopy[T client.Object](o T) T { return o.DeepCopyObject().(T) }

// SaveObject patches the changed fields of an object, based on its version. Fields that
// this release does not know stay.
func (w *Writer) SaveObject(ctx context.Context, before, after client.Object) error {
	return w.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// PatchStatus patches the status of an object if the status differs, and reports whether
// it wrote. Fields that this release does not know stay.
func (w *Writer) PatchStatus(ctx context.Context, before, after client.Object) (bool, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	err := w.client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return err == nil, w.IgnoreStale(ctx, before, err)
}

// ReplaceStatus writes the whole status of an object, zeros included, if the status
// differs, and reports whether it wrote. The Go type of the object must know every field.
func (w *Writer) ReplaceStatus(ctx context.Context, before, after client.Object) (bool, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	err := w.statuses.writeStatus(ctx, w.client, after)
	return err == nil, w.IgnoreStale(ctx, before, err)
}
