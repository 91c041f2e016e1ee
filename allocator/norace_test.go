//go:build !race

package allocator

const race = false
