// Package envtest pins setup-envtest, which finds and verifies prebuilt control planes.
// The script prebuilt.sh, which make calls, runs setup-envtest. The package is a Go
// module of its own so that no other module depends on setup-envtest.
package envtest
