//go:build chaos

package main

import (
	"os"
	"strings"
	"time"
	"unsafe"
)

// clockVariable is the environment variable with the name of a file. The chaos test
// writes the error of the manager's clock to the file, such as -1h30m.
const clockVariable = "BUTLER_IPAM_CHAOS_CLOCK"

// now is the manager's clock plus the error in the file.
func now() time.Time {
	text, _ := os.ReadFile(os.Getenv(clockVariable)) // without the file the error is 0
	by, _ := time.ParseDuration(strings.TrimSpace(string(text)))
	return set(time.Now(), by)
}

// set returns the time that a program reads after the wall clock was set forward by the
// duration by, cut to seconds. The monotonic reading is unchanged, so measured durations
// stay right. Package time has no function with this effect. In the first word of a Time,
// the seconds of the wall clock begin at bit 30.
func set(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30
	return t
}
