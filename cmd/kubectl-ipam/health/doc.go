// Package health finds defects: of pools, claims and addresses in an inventory.Inventory,
// and of the installation (leader, webhooks, certificates, replicas).
//
// A Finding is a Defect with the affected objects, a message and a remedy. Each Defect
// has a stable identifier, and a row in the README of cmd/kubectl-ipam. The caller reads
// the objects, see package cluster.
//
// Every function is pure.
package health
