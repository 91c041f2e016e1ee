// Package services makes a ProxyVIP for each Service of type LoadBalancer that asks for one by the annotation novaedge.io/vip-mode, and
// writes its addresses into the Service's status.
//
//	Service ──annotations, ports──▶ ProxyVIP svc-NAMESPACE.NAME ──▶ webhooks, ledger: as any other
//	   ▲                                   │
//	   └── status.loadBalancer.ingress ◀───┘ spec.address, spec.ipv6Address
//
// # What it promises
//
// The address is the ledger's alone: this package asks for it by creating the ProxyVIP, and has it in the answer. It frees nothing but by
// deleting a ProxyVIP.
//
// A ProxyVIP belongs to the Service of the namespace and name in its own name; neither can have the dot between them, so no two Services share one. It
// is written to, and deleted, only when a read of the API server, made for that decision, says so: what an informer has not seen yet ends nothing. It
// goes when its Service is gone, is being deleted, is of another type or asks no more, also where that happened while no manager ran; a Service
// needs no finalizer for that. A Service takes over the ProxyVIP that was made for an earlier Service of its name, with the address. See restore.go for
// backups. A ProxyVIP of that name which carries no mark of ours, and whose address the Service does not show, is left alone.
//
// What makes no sense in a Service is said in an event, and what it has stays as it is. Another pool means another ProxyVIP, and so another
// address, once there is one to be had; another mode, family or port does not.
//
// # Concurrency
//
// Only the holder of the journal acts. Whatever came up on another replica comes up again when that takes the journal over.
package services
