// Package certificates has the certificate that the webhooks serve with, and by which the replicas know one another. It comes in one of two
// ways: from files that somebody else renews (Files), with an eye on cert-manager where that is who does (CertManager); or the manager
// makes it itself (SelfManaged).
//
// # What SelfManaged promises
//
// Authorities and certificate lie in one Secret. Every replica keeps it, and serves only what is stored there; whoever writes first wins,
// since a write names the version that it has read. So there is no leader, and a replica that ends leaves nothing half done.
//
// No call is lost to a renewal, because everybody trusts an authority before any replica serves a certificate of it:
//
//	authority 2 is stored ──▶ in every caBundle ──▶ it has settled: it signs ──▶ replicas serve its certificate
//	authority 1 stays trusted until it has expired, when no certificate of it is good any more; its key goes when authority 2 signs
//
// An authority signs earlier only where no certificate that is good is left: at the first start, or when all of them have expired.
//
// No single clock decides what is due. Each turn compares this machine's clock with the API server's (package servertime). While the two differ by more
// than ten minutes, the replica serves what is valid by either, renews nothing and says so (Trouble); it makes certificates only where no clock finds
// anything of use. An authority that is not valid yet counts as none. What cannot be served is replaced in growing pauses, as something else may undo that.
//
// The caBundle is written by a patch of that field alone, locked to the version of the configuration that was read before the Secret: a
// replica that is behind cannot take an authority away again. It is no server-side apply. That would own the entries of the list by their
// names, and whoever installs the webhooks could then take none away: what is left of it would be an entry with a caBundle and nothing else,
// which the API server refuses.
//
// The rights for this are in the chart, which gives them where the manager makes its certificates itself and nowhere else.
//
// Everything here may be used from any number of goroutines.
package certificates
