package reconcilers

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
)

// touchWith writes the time into an annotation of a stored claim, which is read into c: no write that was decided on an older version of it can
// land any more. It tells whether the claim with this UID is there.
func touchWith[T client.Object](ctx context.Context, to client.Client, live client.Reader, k ledger.Key, uid string, c T, annotation string) (T, bool, error) {
	if err := live.Get(ctx, request(k).NamespacedName, c); err != nil || string(c.GetUID()) != uid {
		return c, false, client.IgnoreNotFound(err)
	}
	before := copied(c)
	annotations := c.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotation] = time.Now().UTC().Format(time.RFC3339Nano)
	c.SetAnnotations(annotations)
	if err := to.Patch(ctx, c, client.MergeFrom(before)); err != nil {
		return c, false, client.IgnoreNotFound(err)
	}
	return c, string(c.GetUID()) == uid, nil
}
