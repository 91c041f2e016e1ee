// Package clocks tests managers whose wall clock is wrong, on a real API server. The managers are built with the tag chaos, which has
// sandbox.Manager.SetClock set their clock.
package clocks
