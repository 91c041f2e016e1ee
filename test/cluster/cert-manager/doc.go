// Command cert-manager is cert-manager as it is released, in one static binary: its controllers for self-signed and CA issuers, its
// cainjector and its webhook, each behind a word of its own on the command line.
//
// cert-manager publishes its packages as a Go module and not its programs, so these are written here. The module's name lies below
// cert-manager's because the webhook is put together by an internal package, and only what lies there may import it. Issuers that ask
// a service outside of the cluster (ACME, Vault, Venafi) are left out.
package main
