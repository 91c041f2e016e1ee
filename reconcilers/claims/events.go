package claims

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
)

// Reasons of events about a claim.
const (
	eventAllocated       = "IPsAllocated"
	eventFailed          = "AllocationFailed"
	eventAddressConflict = "AddressConflict"
	eventReleaseFailed   = "ReleaseFailed"
	eventWaitingForPool  = "WaitingForPool"
	eventNotOffered      = "NotOffered"
)

func (d *Deps) reportAllocated(c client.Object, pool ledger.Key, message string) {
	d.Events.Routine(c, pool, eventAllocated, message)
}

func (d *Deps) reportFailed(c client.Object, message string) {
	d.Events.Warning(c, eventFailed, message)
}

func (d *Deps) reportConflict(c client.Object, message string) {
	d.Events.Warning(c, eventAddressConflict, message)
}

// reportNotOffered reports that the pool of an owner does not offer some of its
// addresses.
func (d *Deps) reportNotOffered(c client.Object, e *ledger.NotOfferedError) {
	d.Events.Warning(c, eventNotOffered, NotOfferedText(e))
}

func (d *Deps) reportReleaseFailed(c client.Object, message string) {
	d.Events.Warning(c, eventReleaseFailed, message)
}

// reportWaitsForPool reports a claim whose pool has no addresses for the claim, and whose
// status has no field for that.
func (d *Deps) reportWaitsForPool(c client.Object, pool ledger.Key, why error) {
	d.Events.Routine(c, pool, eventWaitingForPool, why.Error())
}
