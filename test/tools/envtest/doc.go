// Package envtest holds setup-envtest, which finds and verifies prebuilt control planes, and prebuilt.sh, by which make uses it. It is a module of
// its own so that nothing else depends on setup-envtest.
package envtest
