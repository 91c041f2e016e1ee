package reconcilers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// firstSeen remembers since when objects are in a state that is acted on only after a while. The times are those of this process: no timestamp of
// another clock counts, and a replica that takes over starts anew. The zero value is ready.
type firstSeen struct {
	mu    sync.Mutex
	times map[types.NamespacedName]map[types.UID]time.Time // claim -> its objects in that state
}

// observe takes in which objects of a claim are in the state, and returns since when each has been. The others are forgotten.
func (f *firstSeen) observe(claim types.NamespacedName, now time.Time, objects []client.Object) map[types.UID]time.Time {
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
