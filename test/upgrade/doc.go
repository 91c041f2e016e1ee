// Package upgrade tests the upgrade from an earlier version to this one and back, with
// claims of every kind in place.
//
// The tests have the build tag upgrade, because they need the earlier version: make
// test-upgrade builds it from git.
package upgrade
