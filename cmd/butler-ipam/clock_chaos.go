//go:build chaos

package main

import (
	"os"
	"strings"
	"time"
	"unsafe"
)

// clockVariable names the file that says by how much the manager's clock is wrong, such as -1h30m. The sandbox writes it.
const clockVariable = "BUTLER_IPAM_CHAOS_CLOCK"

// now is the manager's clock, as wrong as the chaos suite wants it at the moment.
func now() time.Time {
	text, _ := os.ReadFile(os.Getenv(clockVariable)) // right while nobody says otherwise
	by, _ := time.ParseDuration(strings.TrimSpace(string(text)))
	return set(time.Now(), by)
}

// set gives a time as a program reads it whose wall clock somebody has set, by whole seconds: the monotonic reading, by which spans are
// measured, stays. No function of package time does that; the first word of a Time counts the wall clock's seconds from bit 30 up.
func set(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30
	return t
}
