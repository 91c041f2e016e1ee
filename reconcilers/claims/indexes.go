package claims

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Indexes of the claims in the informers. They contain only claims in a passing state, so
// that the cost of a lookup does not grow with the number of claims.
const (
	indexWaiting  = "waiting"  // pool resource and name -> claims without an allocation of this manager
	IndexReleased = "released" // pool -> released claims that wait for their release record, of ReleaseRecorded kinds
	indexConflict = "conflict" // indexFlagged -> all flagged claims
)

const indexFlagged = "flagged"

// AddIndexes adds the indexes of a claim kind.
func AddIndexes[T client.Object](ctx context.Context, indexer client.FieldIndexer, api Adapter[T]) error {
	add := func(name string, value func(T) string, has func(T) bool) error {
		return indexer.IndexField(ctx, api.NewObject(), name, func(o client.Object) []string {
			if c := o.(T); has(c) {
				return []string{value(c)}
			}
			return nil
		})
	}
	waitingFor := func(c T) string {
		pool := api.ToClaim(c).Pool
		return waitingKey(pool.Resource, pool.Name)
	}
	if err := add(indexWaiting, waitingFor, func(c T) bool { return c.GetDeletionTimestamp() == nil && !api.AllocatedByUs(c) }); err != nil {
		return err
	}
	if err := add(indexConflict, func(T) string { return indexFlagged }, api.IsFlagged); err != nil {
		return err
	}
	if recorded, ok := api.(ReleaseRecorded[T]); ok {
		return add(IndexReleased, func(c T) string { return api.ToClaim(c).Pool.Name }, recorded.AwaitsRecord)
	}
	return nil
}

func waitingKey(poolResource, pool string) string { return poolResource + "/" + pool }

// ListIndexed returns the objects of an index that have a value. They are the informer's
// objects: copy before changing.
func ListIndexed[T client.Object](ctx context.Context, informers client.Reader, list client.ObjectList, index, namespace, value string) ([]T, error) {
	err := informers.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var all []T
	err = meta.EachListItem(list, func(o runtime.Object) error {
		all = append(all, o.(T))
		return nil
	})
	return all, err
}

// CountConflicts counts the claims in conflict. A claim that is being deleted stays
// flagged to its end, even after the conflict: such a claim counts only while inConflict
// reports the conflict.
func CountConflicts[T client.Object](ctx context.Context, informers client.Reader, api Adapter[T], inConflict func(uid string) bool) (n int, err error) {
	flagged, err := ListIndexed[T](ctx, informers, api.NewList(), indexConflict, "", indexFlagged)
	for _, c := range flagged {
		if c.GetDeletionTimestamp() == nil || inConflict(string(c.GetUID())) {
			n++
		}
	}
	return n, err
}
