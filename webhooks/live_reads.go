package webhooks

import (
	"context"
	"reflect"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
)

const (
	// readsPerSecond and readsBurst bound the objects that calls read from the API
	// server: a caller of the webhooks can name objects that no informer has.
	readsPerSecond = 200
	readsBurst     = 400
	// listCost is the number of objects that a list counts as.
	listCost = 20
	// readLimit bounds the duration of a read for several calls.
	readLimit = 10 * time.Second
)

// errTooManyReads denies a call that needs a live read above the limit.
var errTooManyReads = &ledger.NotServingError{NoOtherReplica: true, RetryAfter: time.Second,
	Reason: "calls need more than 200 reads of the API server per second, the limit of one replica"}

// liveReads bounds live reads caused by calls. Calls for the same object share a read
// that begins after all of them arrived.
type liveReads struct {
	client.Reader
	limiter *rate.Limiter

	mu   sync.Mutex
	gets map[readTarget]*sharedGet
}

func newLiveReads(from client.Reader) *liveReads {
	return &liveReads{Reader: from, limiter: rate.NewLimiter(readsPerSecond, readsBurst), gets: map[readTarget]*sharedGet{}}
}

// readTarget identifies an object to read by its Go type and key.
type readTarget struct {
	of   reflect.Type
	kind schema.GroupVersionKind // of a type that has several kinds
	client.ObjectKey
}

// sharedGet is a running read and the batch for the next read.
type sharedGet struct{ next *batch }

// batch is the calls that wait for one read.
type batch struct {
	done   chan struct{}
	object client.Object
	err    error
}

// Get implements client.Reader. The errors are those of the reader, and errTooManyReads.
func (l *liveReads) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	t := readTarget{reflect.TypeOf(into), into.GetObjectKind().GroupVersionKind(), key}
	l.mu.Lock()
	get, running := l.gets[t]
	if !running {
		get = &sharedGet{}
		l.gets[t] = get
	}
	if get.next == nil {
		get.next = &batch{done: make(chan struct{}), object: into.DeepCopyObject().(client.Object)}
	}
	b := get.next
	if !running {
		go l.readBatches(context.WithoutCancel(ctx), t, get)
	}
	l.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.done:
	}
	if b.err == nil {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(b.object.DeepCopyObject()).Elem())
	}
	return b.err
}

// readBatches reads one object for one batch after the other, until no call waits.
func (l *liveReads) readBatches(ctx context.Context, t readTarget, get *sharedGet) {
	for {
		l.mu.Lock()
		b := get.next
		if get.next = nil; b == nil {
			delete(l.gets, t)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if b.err = errTooManyReads; l.limiter.Allow() {
			limited, cancel := context.WithTimeout(ctx, readLimit)
			b.err = l.Reader.Get(limited, t.ObjectKey, b.object)
			cancel()
		}
		close(b.done)
	}
}

// List implements client.Reader.
func (l *liveReads) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if !l.limiter.AllowN(time.Now(), listCost) {
		return errTooManyReads
	}
	return l.Reader.List(ctx, list, options...)
}
