// Command butler-ipam is the manager: it puts together the ledger, the webhooks and the reconcilers, and runs them until it is told to
// stop. It decides nothing itself.
//
// Every replica serves webhooks and keeps its informers warm; the journal on the Lease butler-ipam-journal says which one grants.
// controller-runtime's leader election stays off: losing it would end the process, and with it the calls under way.
//
// It begins when the API server is ready and has the CRDs, and until then is healthy and not Ready (await.go).
//
// On SIGTERM the replica hands the journal over first and then answers "ask another one" for --shutdown-delay, so that no call
// meets a closed port while the Service still names it.
package main
