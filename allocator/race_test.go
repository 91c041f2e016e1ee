//go:build race

package allocator

// race reports whether the race detector watches these tests: they then run a part of the
// rounds that they run without it.
const race = true
