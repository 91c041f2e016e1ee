package reconcilers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// sent remembers the allocations that something was written to, until the informers show it. Without it, whatever looks at one in
// between would do the same again, and fail.
type sent struct {
	mu  sync.Mutex
	uid map[types.NamespacedName]types.UID
}

func newSent() *sent { return &sent{uid: map[types.NamespacedName]types.UID{}} }

func (s *sent) add(name types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uid[name] = uid
}

// has says whether the informers have yet to show a write to this very object.
func (s *sent) has(name types.NamespacedName, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uid[name] == uid
}

func (s *sent) forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uid, name)
}
