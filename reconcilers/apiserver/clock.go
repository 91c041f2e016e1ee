package apiserver

import (
	"net/http"
	"sync"
	"time"
)

// tolerance is the difference up to which two clocks count as equal: a Date header has
// whole seconds, and a response takes time.
const tolerance = 5 * time.Second

// Clock estimates the API server's clock from the Date header of responses, as a second
// source beside the clock of this machine. All replicas, and all timestamps set by the
// API server, share the API server's clock. With several API servers the clock of the
// last response counts, so no decision may depend on a Clock without a bound. Clock is
// safe for concurrent use.
type Clock struct {
	now func() time.Time

	mu    sync.Mutex
	ahead time.Duration
	known bool
}

// NewClock returns a Clock that shows the time of this machine until a response
// disagrees.
func NewClock(now func() time.Time) *Clock { return &Clock{now: now} }

// Wrap returns a transport that observes the responses of another transport, for a
// rest.Config.
func (c *Clock) Wrap(over http.RoundTripper) http.RoundTripper { return observer{c, over} }

// Ahead returns by how much the API server's clock is ahead of this machine's wall clock:
// zero while both agree. known is false before the first response.
func (c *Clock) Ahead() (by time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, c.known
}

// Now returns the estimated time of the API server, without a monotonic reading:
// durations are measured by the clock of this machine.
func (c *Clock) Now() time.Time {
	by, _ := c.Ahead()
	return c.now().Round(0).Add(by)
}

type observer struct {
	clock *Clock
	over  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o observer) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := o.clock.now()
	response, err := o.over.RoundTrip(r)
	if err == nil {
		o.clock.observe(sent, o.clock.now(), response.Header.Get("Date"))
	}
	return response, err
}

// WrappedRoundTripper gives client-go access to the transport below.
func (o observer) WrappedRoundTripper() http.RoundTripper { return o.over }

// observe corrects the estimate by a response, by no more than the response proves: at a
// time between sent and received the API server's clock was between date and date + 1 s.
func (c *Clock) observe(sent, received time.Time, date string) {
	at, err := http.ParseTime(date)
	took := received.Sub(sent)
	sent, received = sent.Round(0), received.Round(0)
	if err != nil || (received.Sub(sent)-took).Abs() > time.Second { // the clock of this machine was set between sent and received
		return
	}
	least, most := at.Sub(received), at.Add(time.Second).Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = true
	within := func(by time.Duration) bool { return least-tolerance <= by && by <= most+tolerance }
	switch {
	case within(0):
		c.ahead = 0
	case !within(c.ahead):
		c.ahead = (least + most) / 2
	}
}
