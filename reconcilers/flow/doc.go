// Package flow has the devices by which reconcilers control how often they work and
// write:
//
//	Debouncer        joins the keys that arrive within a delay
//	Pacer            spaces writes that can wait, so that creates get the time in between
//	Backoff          pauses longer after each failure of an object, until the object or the pool changes
//	Expectations     skips objects whose informer has not delivered the last write of this process
//	FirstObserved    measures by the clock of this process since when a condition holds; ObservedObjects does so for the objects of a claim
//	Queue            serves the oldest request first, namespaces in turns, and bounds the workers of namespaces whose writes take long. A Queue exists before the
//	                 manager starts, since the ledger reports changes from the start of the ledger on
//
// Every device is safe for concurrent use.
package flow
