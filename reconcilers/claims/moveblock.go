package claims

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/reconcilers/clusters"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// A claim stored without an address must not move to another cluster while an address is
// written: clusterctl would move the claim without the address, and the target cluster
// would allocate a second address. Before a move, clusterctl pauses the Cluster and waits
// until no claim has the annotation block-move.
//
//	granted ──▶ annotation added ──▶ is the Cluster paused in the API server? ──▶ no: address written, annotation removed
//	                                                                          └──▶ yes: annotation removed, grant withdrawn
//
// If a replica ends between two steps, the next leader grants an address to the claim, or
// removes the annotation from a claim that is denied. clusterctl reads the annotation
// when listing the objects to move, shortly before the pause: an annotation added between
// list and pause does not stop clusterctl.

// moveBlock is the annotation's value if this manager set it. clusterctl ignores the
// value; other clients may set the annotation for reasons of their own.
const moveBlock = "butler-ipam"

// blockMove keeps a claim in this cluster, from the stored version on, and reports
// whether the claim may get an address.
func (r *Reconciler[T]) blockMove(ctx context.Context, c T) (bool, error) {
	before := write.DeepCopy(c)
	annotations := c.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[clusterpause.AnnotationBlockMove] != moveBlock { // else an earlier attempt wrote the annotation: the next write fails if it is gone
		annotations[clusterpause.AnnotationBlockMove] = moveBlock
		c.SetAnnotations(annotations)
		if err := r.SaveObject(ctx, before, c); err != nil {
			return false, err
		}
	}
	if r.checkManaged(ctx, c, clusters.Live(ctx, r.Live)) != nil {
		return false, r.unblockMove(ctx, c)
	}
	return true, nil
}

// unblockMove permits clusterctl to move a claim without an address.
func (r *Reconciler[T]) unblockMove(ctx context.Context, c T) error {
	if r.pausable == nil {
		return nil
	}
	before := write.DeepCopy(c)
	if !RemoveMoveBlock(c) {
		return nil
	}
	return r.IgnoreStale(ctx, before, r.SaveObject(ctx, before, c))
}

// RemoveMoveBlock removes this manager's annotation block-move, and reports whether the
// claim had it.
func RemoveMoveBlock(c client.Object) bool {
	annotations := c.GetAnnotations()
	if annotations[clusterpause.AnnotationBlockMove] != moveBlock {
		return false
	}
	delete(annotations, clusterpause.AnnotationBlockMove)
	c.SetAnnotations(annotations)
	return true
}
