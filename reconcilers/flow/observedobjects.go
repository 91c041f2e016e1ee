package flow

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ObservedObjects records since when the objects of a claim are in a condition with
// consequences after a while. The times are of the clock of this process: no timestamp of
// another clock counts, and after a take-over the times begin again. The zero value is
// ready.
type ObservedObjects struct {
	mu    sync.Mutex
	times map[types.NamespacedName]map[types.UID]time.Time // claim -> its objects in that condition
}

// Observe records which objects of a claim are in the condition, and returns since when
// each object has been. Records of the claim's remaining objects are removed.
func (f *ObservedObjects) Observe(claim types.NamespacedName, now time.Time, objects []client.Object) map[types.UID]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	since := make(map[types.UID]time.Time, len(objects))
	for _, o := range objects {
		first, known := f.times[claim][o.GetUID()]
		if !known {
			first = now
		}
		since[o.GetUID()] = first
	}
	if len(since) == 0 {
		delete(f.times, claim)
		return since
	}
	if f.times == nil {
		f.times = map[types.NamespacedName]map[types.UID]time.Time{}
	}
	f.times[claim] = since
	return since
}
