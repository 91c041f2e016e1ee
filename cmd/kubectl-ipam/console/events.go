package console

import "butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"

// eventList contains the newest events about a pool.
type eventList struct {
	short[inventory.Event]
	Note string // events that are not read, and why; "" if the events are complete
}

// eventsOf returns the events about a pool; nil if pages have no events.
func (r *request) eventsOf(p *inventory.Pool) *eventList {
	if r.options.Events == nil {
		return nil
	}
	list, note := r.options.Events(r.ctx, p)
	return &eventList{shorten(list, ""), note}
}
