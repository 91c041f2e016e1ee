package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// load is clients that create one object after the other.
type load struct {
	stopping chan struct{}
	clients  sync.WaitGroup

	mu    sync.Mutex
	calls []call // that have ended
}

// call is one create, as its client saw it.
type call struct {
	began, ended time.Time
	err          error
}

func (c *collection) startLoad(ctx context.Context, clients int) *load {
	l := &load{stopping: make(chan struct{})}
	for id := range clients {
		l.clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stopping:
					return
				case <-ctx.Done():
					return
				default:
					l.call(func() error { return c.create(ctx, c.body(fmt.Sprintf("c%d-%d", id, i))) })
				}
			}
		})
	}
	return l
}

func (l *load) call(create func() error) {
	began := time.Now()
	err := create()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call{began, time.Now(), err})
}

// stop lets no further call begin.
func (l *load) stop() { close(l.stopping) }

// wait returns the calls when all have ended, in the order of their ends.
func (l *load) wait() []call {
	l.clients.Wait()
	slices.SortFunc(l.calls, func(x, y call) int { return x.ended.Compare(y.ended) })
	return l.calls
}

// answered is how many calls that began after a moment were answered, and when the first
// of them was.
func (l *load) answered(after time.Time) (n int, first time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c.err == nil && c.began.After(after) {
			if n++; n == 1 || c.ended.Before(first) {
				first = c.ended
			}
		}
	}
	return n, first
}

// awaitAnswers waits until n calls that began after a moment were answered, and says when
// the first was.
func (l *load) awaitAnswers(ctx context.Context, n int, after time.Time) (first time.Time, err error) {
	err = await(ctx, func(context.Context) error {
		var got int
		if got, first = l.answered(after); got < n {
			return fmt.Errorf("%d creates are answered, want %d", got, n)
		}
		return nil
	})
	return first, err
}
