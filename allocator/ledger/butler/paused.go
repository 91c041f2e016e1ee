package butler

import (
	"fmt"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// annotationPaused pauses the reconciliation of an object, by Cluster API's convention.
const annotationPaused = "cluster.x-k8s.io/paused"

// PoolPausedError reports that a NetworkPool carries the annotation cluster.x-k8s.io/paused, so that allocations which name no range wait.
type PoolPausedError struct{ Pool ledger.Key }

func (e *PoolPausedError) Error() string {
	return fmt.Sprintf("pool %s is paused (annotation %s): addresses are allocated when the annotation is removed", e.Pool, annotationPaused)
}

// CheckPaused returns a *PoolPausedError for a paused pool.
func CheckPaused(p *v1alpha1.NetworkPool) error {
	if _, paused := p.Annotations[annotationPaused]; paused {
		return &PoolPausedError{Pool: NetworkPoolKey(p.Namespace, p.Name)}
	}
	return nil
}
