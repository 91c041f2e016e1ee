// Package services creates a ProxyVIP for each Service of type LoadBalancer with the
// annotation novaedge.io/vip-mode, and writes the addresses of the ProxyVIP into the
// status of the Service.
//
//	Service ──annotations, ports──▶ ProxyVIP svc-NAMESPACE.NAME ──▶ webhooks, ledger: as for every ProxyVIP
//	   ▲                                   │
//	   └── status.loadBalancer.ingress ◀───┘ spec.address, spec.ipv6Address
//
// # Guarantees
//
// The ledger alone allocates: package services requests an address by creating the
// ProxyVIP, reads the address from the response, and releases the address only by
// deleting the ProxyVIP.
//
// A ProxyVIP belongs to the Service whose namespace and name are in the name of the
// ProxyVIP. Neither can contain the dot in between, so two Services never share a
// ProxyVIP. A live read precedes each write and deletion of a ProxyVIP, so a lagging
// informer deletes nothing. A ProxyVIP is deleted when the Service is gone, is being
// deleted, has another type or lost the annotation, also if the change happened while no
// manager ran; a Service needs no finalizer. A Service takes over the ProxyVIP, with the
// address, of an earlier Service of equal namespace and name; restore.go describes
// backups. A ProxyVIP with the name for a Service, without a mark of package services and
// with addresses that the Service does not show, is left alone.
//
// An invalid annotation is reported in an event, and the Service keeps the ProxyVIP
// unchanged. With another pool the Service gets another ProxyVIP and so another address,
// once an address is available. Another mode, family or port leaves the ProxyVIP in
// place.
//
// Services that wait for addresses of a pool are served oldest first. They request again
// after a change of the pool, and not by time (waitingServices).
//
// # Concurrency
//
// Only the leader acts. A follower records that requests arrived, and repeats them when
// it takes over.
package services
