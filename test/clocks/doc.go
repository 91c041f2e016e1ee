// Package clocks tests managers with wrong wall clocks on a real API server. The managers
// are built with the build tag chaos, which lets sandbox.Manager.SetClock set their
// clocks.
package clocks
