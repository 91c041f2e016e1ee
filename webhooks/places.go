package webhooks

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
)

const (
	// maxCalls are at work at a time. The API server repeats what comes beyond them a second later.
	maxCalls = 1024
	// maxLarge bounds the bodies of calls at work, in bytes, of those that have more than ordinaryBody each: they leave the others room.
	maxLarge     = 64 << 20
	ordinaryBody = 64 << 10
	// maxDecoded bounds what the objects of calls at work take, in bytes, of those that take more than ordinaryObjects each. With the bodies, as many
	// ordinary calls as there may be, and what connections.Limit leaves to the others, it is two thirds of the gigabyte that the process has.
	maxDecoded      = 192 << 20
	ordinaryObjects = 256 << 10
)

// places bound the calls that are at work at a time, and the memory that they take.
type places struct {
	calls   chan struct{}
	large   *semaphore.Weighted
	decoded *semaphore.Weighted
}

func newPlaces(calls int, large int64) *places {
	return &places{make(chan struct{}, calls), semaphore.NewWeighted(large), semaphore.NewWeighted(maxDecoded)}
}

// decode takes the memory that the objects in a body need once they are read, which may be a hundred times its size. leave gives it back. Ordinary
// ones need not ask, so that no others keep them waiting.
func (p *places) decode(body []byte) (leave func(), err error) {
	takes := min(maxDecoded, fields.Decoded(int64(len(body)), int64(bytes.Count(body, []byte{','}))))
	if takes <= ordinaryObjects {
		return func() {}, nil
	}
	if !p.decoded.TryAcquire(takes) {
		return nil, errors.New("calls with objects of many values take all memory that there is for them: try again")
	}
	return func() { p.decoded.Release(takes) }, nil
}

// enter takes a place for a call with a body of so many bytes. leave gives it back.
func (p *places) enter(body int64) (leave func(), err error) {
	select {
	case p.calls <- struct{}{}:
	default:
		return nil, fmt.Errorf("%d calls are at work here: try again", cap(p.calls))
	}
	if body <= ordinaryBody {
		return func() { <-p.calls }, nil
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
