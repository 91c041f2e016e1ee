// Package health finds defects: of pools, claims and addresses in an inventory.Inventory, and of the installation (leader, webhooks, certificates, replicas).
//
// A Finding is a Defect of stored objects with a message and a remedy. Each Defect has a stable identifier; the README of cmd/kubectl-ipam has a row for each
// Defect. The caller reads the objects, see package cluster.
//
// Every function is pure.
package health
