package reconcilers

import (
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
)

// sent remembers the claims that were answered or let go, until the informers show it, or what came of it since. Without it, whatever looks at one in
// between would do the same again, and fail.
type sent struct {
	mu   sync.Mutex
	last map[types.NamespacedName]version
}

// version is one of an object.
type version struct {
	uid    types.UID
	number uint64
}

func newSent() *sent { return &sent{last: map[types.NamespacedName]version{}} }

// add notes a write, by the object that came back.
func (s *sent) add(written client.Object) { s.note(written, fields.ResourceVersion(written)) }

// end notes the last write to an object that is going: no later version of it needs another. What comes back from it may never have been stored.
func (s *sent) end(written client.Object) { s.note(written, math.MaxUint64) }

func (s *sent) note(o client.Object, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[client.ObjectKeyFromObject(o)] = version{o.GetUID(), number}
}

// has says whether an object is older than what was written to it.
func (s *sent) has(shown client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[client.ObjectKeyFromObject(shown)]
	return last.uid == shown.GetUID() && last.number > fields.ResourceVersion(shown)
}

func (s *sent) forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, name)
}
