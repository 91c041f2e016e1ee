package review

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"

	"butlerlabs.dev/ipam/allocator/kinds/object"
)

const (
	// maxCalls bounds the calls at work. The API server repeats further calls after a
	// second.
	maxCalls = 1024
	// maxLargeBodies bounds the bodies above ordinaryBody of all calls at work together,
	// in bytes. Smaller bodies are not counted.
	maxLargeBodies = 64 << 20
	ordinaryBody   = 64 << 10
	// maxDecoded bounds the decoded objects above ordinaryObjects of all calls at work
	// together, in bytes. With the bodies, maxCalls ordinary calls, and
	// server.ConnectionMemory, the sum is two thirds of the gigabyte of memory of the
	// process.
	maxDecoded      = 192 << 20
	ordinaryObjects = 256 << 10
)

// limiter bounds the calls at work and their memory.
type limiter struct {
	calls   chan struct{}
	large   *semaphore.Weighted
	decoded *semaphore.Weighted
}

func newLimiter(calls int, largeBodies int64) *limiter {
	return &limiter{make(chan struct{}, calls), semaphore.NewWeighted(largeBodies), semaphore.NewWeighted(maxDecoded)}
}

// admitCall reserves a slot for a call with a body of the given size in bytes. The caller
// must call release after the call.
func (p *limiter) admitCall(body int64) (release func(), err error) {
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
		return nil, errors.New("calls with large objects use all memory reserved for them: try again")
	}
	return func() {
		p.large.Release(body)
		<-p.calls
	}, nil
}

// admitDecoding reserves the memory of the decoded objects of a body, which can be a
// hundred times the size of the body. The caller must call release after the call.
// Ordinary objects reserve nothing, so large objects cannot delay them.
func (p *limiter) admitDecoding(body []byte) (release func(), err error) {
	size := min(maxDecoded, object.DecodedBytes(int64(len(body)), int64(bytes.Count(body, []byte{','}))))
	if size <= ordinaryObjects {
		return func() {}, nil
	}
	if !p.decoded.TryAcquire(size) {
		return nil, errors.New("calls with objects of many values use all memory reserved for them: try again")
	}
	return func() { p.decoded.Release(size) }, nil
}
