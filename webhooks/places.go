package webhooks

import (
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"
)

const (
	// maxCalls are at work at a time; of what comes beyond them nothing is read. The API server repeats it a second later.
	maxCalls = 1024
	// maxLarge bounds the bodies of calls at work, in bytes, of those that have more than ordinaryBody each. Reading a body takes some five times its
	// size; with as many ordinary ones as there may be it stays below the gigabyte that the process has. Large ones leave the others room.
	maxLarge     = 64 << 20
	ordinaryBody = 64 << 10
)

// places bound the calls that are at work at a time, and the memory that they take.
type places struct {
	calls chan struct{}
	large *semaphore.Weighted
}

func newPlaces(calls int, large int64) *places {
	return &places{make(chan struct{}, calls), semaphore.NewWeighted(large)}
}

// enter takes a place for a call with a body of so many bytes, less than zero where that is not known. leave gives it back.
func (p *places) enter(body int64) (leave func(), err error) {
	select {
	case p.calls <- struct{}{}:
	default:
		return nil, fmt.Errorf("%d calls are at work here: try again", cap(p.calls))
	}
	if 0 <= body && body <= ordinaryBody {
		return func() { <-p.calls }, nil
	}
	if body < 0 || body > maxBody {
		body = maxBody // no more of it is read
	}
	if !p.large.TryAcquire(body) {
		<-p.calls
		return nil, errors.New("calls with large objects take all memory that there is for them: try again")
	}
	return func() {
		p.large.Release(body)
		<-p.calls
	}, nil
}
