// Command butler-ipam is the manager: it connects the ledger, the webhooks and the reconcilers, and runs them until SIGTERM.
//
// Every replica serves webhooks and keeps its informers synced. The leader, recorded in the Lease butler-ipam-journal, allocates. controller-runtime's
// leader election stays off: a lost election would end the process, and with it the calls at work.
//
// The manager starts when the API server is ready and has the CRDs, and until then is healthy and not Ready (apiserver.Await).
//
// On SIGTERM a replica first hands over the journal. For --shutdown-delay it then answers with HTTP 503, so the API server calls another replica, and no call
// meets a closed port while the Service still routes to this replica.
//
// The command butler-ipam console is another process, with rights of its own: it serves the pages of package console.
package main
