// Package costs checks the CEL rules of the CRDs with the library of the oldest supported
// API server, without a running API server. It checks that the API server supports every
// function, and that the estimated costs of each rule and of each CRD are far below the
// API server's limits. It also checks that every document names this oldest version. The
// package is a Go module of its own because the manager uses another version of the same
// library.
package costs
