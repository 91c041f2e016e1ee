// Package certificates provides the TLS certificate of the webhooks, which is also the
// client certificate between replicas. The certificate has one of two sources:
//
//	Files          files in a directory, renewed by another program; CertManager monitors the renewal if cert-manager is that program
//	SelfManaged    the manager issues and renews the certificate
//
// # SelfManaged
//
// One Secret contains the authorities and the certificate, and every replica serves only
// what the Secret contains. Every replica may renew. A write names the resourceVersion
// that was read, so the first write wins. No leader is needed, and a replica that ends
// leaves no write half done.
//
// No call fails because of a renewal: an authority is trusted everywhere before any
// replica serves a certificate of that authority.
//
//	authority 2 is stored ──▶ in every caBundle ──▶ settled: authority 2 signs ──▶ replicas serve its certificate
//	authority 1 is trusted until it expires, and no certificate of authority 1 is valid after that; its key is removed when authority 2 signs
//
// An authority signs before it has settled only if no valid certificate is left: at the
// first start, or when all certificates have expired.
//
// No single clock decides what is due. Each turn compares the clock of this machine with
// the clock of the API server (package apiserver). While the clocks differ by more than
// ten minutes:
//
//	a certificate is valid by either clock             the replica serves the certificate, renews nothing and reports the difference (Trouble)
//	an authority is valid by one of the clocks only    the replica renews nothing and reports the difference
//	otherwise                                          the replica issues new certificates
//
// An authority that is not valid yet is ignored. A stored certificate that cannot be
// served is replaced with exponential backoff, because another program may revert each
// replacement.
//
// The caBundle is written by a patch of that field alone, with the resourceVersion of the
// webhook configuration that was read before the Secret: a replica with an old Secret
// cannot remove an authority. Server-side apply is not used. It would make the manager an
// owner of the list entries by name. When an installer then removed a webhook, an entry
// with only a caBundle would remain, which the API server denies.
//
// The chart grants the permissions for SelfManaged only if the manager issues its
// certificates.
//
// All exported methods are safe for concurrent use.
package certificates
