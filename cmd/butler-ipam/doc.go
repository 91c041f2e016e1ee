// Command butler-ipam is the manager: it connects the ledger, the webhooks and the
// reconcilers, and runs the manager until SIGTERM.
//
// Every replica serves webhooks and keeps its informers synced. The leader, recorded in
// the Lease butler-ipam-journal, allocates. The leader election of controller-runtime
// stays off, because a lost election would end the process and the admission calls in
// progress.
//
// The manager starts when the API server is ready and serves the CRDs. Until the start
// the manager is healthy and not Ready (apiserver.Await).
//
// On SIGTERM a replica first hands over the journal. For --shutdown-delay the replica
// then answers with HTTP 503, so that the API server calls another replica: the port is
// still open while the Service routes to this replica.
//
// The command butler-ipam console runs as a separate process with separate rights, and
// serves the pages of package console.
package main
