package reconcilers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// sent remembers the allocations that an answer was written to until the informers show it. Without it, whatever looks at one in
// between would ask the ledger for a second grant and fail to write it.
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

// has says whether an answer to this very object is under way to the informers.
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
