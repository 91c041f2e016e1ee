package reconcilers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger/metal3"
)

// A claim that is stored without an address stays in this cluster while it is being given one: before it moves anything, clusterctl pauses the
// Cluster and waits until no claim has the annotation. It would take the claim along as it is otherwise, and the other cluster give it another address.
//
//	granted ──▶ annotation on ──▶ does the Cluster run, says the API server? ──▶ yes: address on, annotation off
//	                                                                         └──▶ no: annotation off, grant withdrawn
//
// A claim that a replica left with it gets its address from the next, or the annotation is taken off where it gets none. clusterctl takes
// note of the annotation when it looks for what is to be moved, shortly before the pause: what begins in between it does not wait for.

// blocker is the annotation's value where it is ours, which does not matter to clusterctl: others may have reasons of their own.
const blocker = "butler-ipam"

// hold keeps a claim here, as the API server stores it from now on, and tells whether it may be given an address.
func (r *claims[T]) hold(ctx context.Context, c T) (bool, error) {
	before := copied(c)
	annotations := c.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[metal3.AnnotationBlockMove] != blocker { // else an earlier attempt wrote it: the next write fails where it is no longer there
		annotations[metal3.AnnotationBlockMove] = blocker
		c.SetAnnotations(annotations)
		if err := r.save(ctx, before, c); err != nil {
			return false, err
		}
	}
	if r.api.rests(ctx, r.desk, c, liveClusters(ctx, r.live)) != nil {
		return false, r.letGo(ctx, c)
	}
	return true, nil
}

// letGo lets a claim be moved as it is.
func (r *claims[T]) letGo(ctx context.Context, c T) error {
	before := copied(c)
	if !unblock(c) {
		return nil
	}
	return r.overtaken.Ignore(ctx, before, r.save(ctx, before, c))
}

// unblock takes our annotation off a claim, and tells whether it was there.
func unblock(c client.Object) bool {
	annotations := c.GetAnnotations()
	if annotations[metal3.AnnotationBlockMove] != blocker {
		return false
	}
	delete(annotations, metal3.AnnotationBlockMove)
	c.SetAnnotations(annotations)
	return true
}
