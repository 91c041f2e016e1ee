package poolrecord

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"butlerlabs.dev/ipam/allocator/ledger"
)

// The ConfigMaps of a moved record.
const (
	// LabelMoved labels each ConfigMap with the UID of the pool.
	LabelMoved = "butler.butlerlabs.dev/moved-ranges-of"
	// AnnotationMovedPool identifies the pool for people: kind/namespace/name.
	AnnotationMovedPool = "butler.butlerlabs.dev/pool"
	// KeyMoved is the key of the data.
	KeyMoved = "moved"
)

// ReadMoved decodes a ConfigMap of a moved record. The pool is returned as far as it can
// be read, also with an error.
func ReadMoved(m *corev1.ConfigMap) (pool ledger.Key, moved []ledger.Moved, err error) {
	moved, err = ParseMoved(m.Data[KeyMoved])
	if names := strings.Split(m.Annotations[AnnotationMovedPool], "/"); len(names) == 3 {
		pool = ledger.Key{Resource: names[0], Namespace: names[1], Name: names[2]}
	} else if err == nil {
		err = fmt.Errorf("annotation %s is %q, want kind/namespace/name", AnnotationMovedPool, m.Annotations[AnnotationMovedPool])
	}
	return pool, moved, err
}
