//go:build chaos

package main

import (
	"os"
	"strings"
	"time"
	"unsafe"
)

// clockVariable names a file with the error of the manager's clock, such as -1h30m. The sandbox writes it.
const clockVariable = "BUTLER_IPAM_CHAOS_CLOCK"

// now is the manager's clock, with the error that the chaos test has set.
func now() time.Time {
	text, _ := os.ReadFile(os.Getenv(clockVariable)) // without the file the clock is right
	by, _ := time.ParseDuration(strings.TrimSpace(string(text)))
	return set(time.Now(), by)
}

// set returns a time as a program reads it after the wall clock was set by whole seconds: durations are still measured by the monotonic reading, which is
// unchanged. No function of package time does this; in the first word of a Time, the seconds of the wall clock begin at bit 30.
func set(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30
	return t
}
