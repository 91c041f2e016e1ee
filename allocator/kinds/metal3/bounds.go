package metal3

import (
	"maps"
	"slices"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Bounds of status.indexes of an IPPool: in bytes (package object), and by the schema.
const (
	maxIndexes    = 1 << 20
	maxIndexCount = 49152
	maxIndexEntry = 400 // bytes of the longest entry
)

// indexBytes returns the bytes of an entry of status.indexes.
func indexBytes(name string, a v1alpha1.IP) int { return len(name) + len(a) + 6 }

// BoundIndexes removes the entries of status.indexes, the last by name, for which the
// pool has no room, and returns their number. They own their addresses as others do.
func BoundIndexes(indexes map[string]v1alpha1.IP) (unlisted int) {
	room, n := maxIndexes, 0
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		room -= indexBytes(name, indexes[name])
		if n++; room < 0 || n > maxIndexCount {
			delete(indexes, name)
			unlisted++
		}
	}
	return unlisted
}

// IsIndexFull reports whether status.indexes of a pool has no room for another claim.
func IsIndexFull(p *v1alpha1.IPPool) bool {
	used := maxIndexEntry
	for name, a := range p.Status.Indexes {
		used += indexBytes(name, a)
	}
	return used > maxIndexes || len(p.Status.Indexes) >= maxIndexCount
}
