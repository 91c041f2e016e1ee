// Package remote reads and writes the API server of one tenant: Services of type
// LoadBalancer, events, pool and advertisement of MetalLB.
//
//	Credentials  client configuration from the kubeconfig Secret of the tenant, read again when due
//	Connection   one client; mirrors follow lists and watches until an error is sent to Lost
//	mirror       bounded copy of the objects of one kind
//	reader       bounded lists of one kind, in pages
//
// # Bounds
//
// A tenant may be slow, broken or hostile. Bounds limit the cost:
//
//	client          20 calls per second, bursts of 40; no redirects; JSON only
//	call            5 s until the end of the answer; for a watch, until the answer begins
//	answer, event   4 MiB, and 16 MiB when decoded
//	list            pages of 200 objects, smaller after an oversized answer
//	Services        Options.MaxServices objects, of 2 KiB each on average
//	MetalLB         pool default-pool, 100 pools of other names with 1,000 entries each, one advertisement
//
// A mirror at the bound is partial: some objects are missing, and [Connection.Services]
// reports so.
package remote
