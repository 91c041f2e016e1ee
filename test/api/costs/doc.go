// Package costs checks the CEL rules of the CRDs with the code of the oldest supported API server, without running one: that the API server knows
// every function, and that the estimated cost of each rule and of each CRD is far below the API server's limits. It is a module of its own
// because the manager is built from another version of the same code. It also checks that every document names that version.
package costs
