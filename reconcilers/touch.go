package reconcilers

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
)

// annotationTouched is when a claim was written to so that nothing older can land any more.
const annotationTouched = "butler.butlerlabs.dev/touched"

// touchWith writes the time into an annotation of a stored claim, which is read into c: no write that was decided on an older version of it can
// land any more. It gives the resourceVersion of that, 0 where no claim with this UID is there.
func touchWith[T client.Object](ctx context.Context, to client.Client, live client.Reader, k ledger.Key, uid string, c T) (uint64, error) {
	if err := live.Get(ctx, request(k).NamespacedName, c); err != nil || string(c.GetUID()) != uid {
		return 0, client.IgnoreNotFound(err)
	}
	before := copied(c)
	annotations := c.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationTouched] = time.Now().UTC().Format(time.RFC3339Nano)
	c.SetAnnotations(annotations)
	if err := to.Patch(ctx, c, client.MergeFrom(before)); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return fields.ResourceVersion(c), nil
}
