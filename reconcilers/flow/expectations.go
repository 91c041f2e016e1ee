package flow

import (
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/object"
)

// Expectations records the last write to each claim until the informer delivers the
// written version or a later one. A reconcile in between would otherwise repeat the write
// and fail.
type Expectations struct {
	mu   sync.Mutex
	last map[types.NamespacedName]version
}

// version of an object.
type version struct {
	uid    types.UID
	number uint64
}

// NewExpectations returns expectations of no object.
func NewExpectations() *Expectations { return &Expectations{last: map[types.NamespacedName]version{}} }

// ExpectVersion records a write by the object in the response.
func (s *Expectations) ExpectVersion(written client.Object) {
	s.recordVersion(written, object.ResourceVersion(written))
}

// ExpectDeletion records the last write to an object that is being deleted: no later
// version needs another write. The version in the response may never have been stored.
func (s *Expectations) ExpectDeletion(written client.Object) {
	s.recordVersion(written, math.MaxUint64)
}

func (s *Expectations) recordVersion(o client.Object, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[client.ObjectKeyFromObject(o)] = version{o.GetUID(), number}
}

// IsStale reports whether a version from the informer is older than the recorded write.
func (s *Expectations) IsStale(shown client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[client.ObjectKeyFromObject(shown)]
	return last.uid == shown.GetUID() && last.number > object.ResourceVersion(shown)
}

// Forget removes the record of an object.
func (s *Expectations) Forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, name)
}
