// Package servertime estimates the API server's clock from the Date of its responses, as a second source beside the clock of this machine. All
// replicas and all timestamps that the API server sets have that clock in common; where there are several API servers, that of the last response
// counts, so no decision may depend on it without a bound.
package servertime

import (
	"net/http"
	"sync"
	"time"
)

// tolerance is how far two clocks may differ and count as the same: a Date has whole seconds, and a response takes its time.
const tolerance = 5 * time.Second

// Clock is safe for concurrent use.
type Clock struct {
	now func() time.Time

	mu    sync.Mutex
	ahead time.Duration
	known bool
}

// New makes a clock beside this machine's, which agrees with that until a response disagrees.
func New(now func() time.Time) *Clock { return &Clock{now: now} }

// Wrap observes the responses to requests that a transport makes, for a rest.Config.
func (c *Clock) Wrap(over http.RoundTripper) http.RoundTripper { return observer{c, over} }

// Ahead is by how much the API server's clock is ahead of this machine's wall clock, zero while the two agree. known is false before the first
// response.
func (c *Clock) Ahead() (by time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, c.known
}

// Now is the API server's time, as far as it is known. It has no monotonic reading: spans are measured by this machine's clock.
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

// WrappedRoundTripper lets client-go reach the transport below.
func (o observer) WrappedRoundTripper() http.RoundTripper { return o.over }

// observe adjusts the estimate to a response, by no more than what the response proves. The API server's clock was between date and a second
// later at some time between the two.
func (c *Clock) observe(sent, received time.Time, date string) {
	at, err := http.ParseTime(date)
	took := received.Sub(sent)
	sent, received = sent.Round(0), received.Round(0)
	if err != nil || (received.Sub(sent)-took).Abs() > time.Second { // this machine's clock was set meanwhile
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
