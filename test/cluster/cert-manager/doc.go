// Command cert-manager is the released cert-manager in one static binary. It contains the
// controllers for self-signed and CA issuers, the cainjector and the webhook. The first
// argument of the command line selects the component.
//
// cert-manager publishes its packages as a Go module, but not its programs; so the
// programs are written here. The module path is below cert-manager's module path because
// an internal package builds the webhook, and Go permits its import only below that path.
// Issuers that call a service outside the cluster (ACME, Vault, Venafi) are omitted.
package main
