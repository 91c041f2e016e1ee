//go:build race

package inventory

// race reports whether the race detector watches these tests: time limits then do not
// apply.
const race = true
