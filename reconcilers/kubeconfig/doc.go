// Package kubeconfig reads how a tenant's API server is reached from the Secret that its control plane's provider wrote.
//
// Who can write that Secret is not trusted with more than the tenant: what is read can make this process neither run a program, nor read a
// file, nor send anything through or to somebody who does not show a certificate of the given authority. So all must be inline, and what would
// need more is refused with an error that says what to write instead. Errors never quote credentials.
//
// Every function is pure and safe for concurrent use.
package kubeconfig
