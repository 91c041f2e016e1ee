//go:build !race

package inventory

const race = false
