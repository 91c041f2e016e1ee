// Package kubeconfig reads the kubeconfig of a tenant's API server from the Secret that
// the provider of the control plane wrote.
//
// The authors of the Secret are trusted with the tenant only. A kubeconfig must not make
// this process
//
//	run a program
//	read a file
//	send anything through a proxy, or to a server without a certificate of the given authority
//	compute for long with an oversized key
//
// Therefore the data must be inline. An error rejects other kubeconfigs and names the
// field to use instead. Errors never quote credentials.
//
// Every function is pure and safe for concurrent use.
package kubeconfig
