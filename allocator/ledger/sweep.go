package ledger

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/client-go/util/workqueue"

	"butlerlabs.dev/ipam/allocator/journal"
)

// tick ends rests, while this replica follows as well: else they would pile up, with nobody to know that their ranges were given again.
func (l *Ledger) tick(ctx context.Context, source Source) {
	for journal.Pause(ctx, sweepEvery) == nil {
		l.look(source)
		l.do(func(b *book) { b.tick(l.now()) })
	}
}

// sweep ends the grants whose life has passed, while the term lasts.
func (l *Ledger) sweep(ctx context.Context, source Source) {
	reread := time.Now()
	s := &sweeper{
		Ledger: l, source: source, scans: map[listing]time.Time{},
		failures: workqueue.NewTypedItemExponentialFailureRateLimiter[Key](touchAgain, touchLongest),
	}
	for journal.Pause(ctx, sweepEvery) == nil {
		if now := time.Now(); now.Sub(reread) >= tellEvery {
			reread = now
			l.rereadRecords(ctx, source)
		}
		var due []*line
		l.do(func(b *book) { due = b.due(l.now()) })
		if len(due) == 0 {
			continue
		}
		if err := s.end(ctx, due); err != nil && ctx.Err() == nil {
			l.tell(fmt.Errorf("%d grants: %w", len(due), err), "Grants that came to nothing cannot be ended yet")
		}
	}
}

// sweeper ends grants whose life has passed. It belongs to one goroutine.
type sweeper struct {
	*Ledger
	source   Source
	failures workqueue.TypedRateLimiter[Key] // to write to stored objects
	scans    map[listing]time.Time           // -> when it may be listed again
}

// listing is what one list has: the claims of a kind in one namespace.
type listing struct{ kind, namespace string }

// end ends grants whose life has passed and whose claim is not stored. A claim that was stored before its grant is written to
// first, so that a write still under way cannot put the range into it afterwards; and that is seen first, as is a pool's last change. Who takes the
// journal over waits for what was seen, and would not know what such a write did before. What cannot be read or written now keeps its own grants only:
// the error is the first of these.
func (s *sweeper) end(ctx context.Context, due []*line) (failed error) {
	started := time.Now()
	fail := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	type object struct {
		key Key
		uid string
	}
	var order []object
	stored, creates := map[object][]*line{}, map[listing][]*line{}
	for _, ln := range due {
		ended := ln.outlived > 0 || !s.counts(ln.Kind) // the second is of a later release, and cannot be looked for
		s.do(func(b *book) {
			if ended = ended || len(ln.shown) > 0 && b.allSeen(ln.shown); ended {
				b.end(ln)
			}
		})
		switch o := (object{ln.object(), ln.UID}); {
		case ended:
		case ln.Stored != "":
			if stored[o] == nil {
				order = append(order, o)
			}
			stored[o] = append(stored[o], ln)
		default:
			in := listing{ln.Kind, ln.Namespace}
			creates[in] = append(creates[in], ln)
		}
	}
	for _, o := range order {
		if ctx.Err() != nil || time.Since(started) > touchLimit { // with a later sweep
			break
		}
		version, err := s.source.Touch(ctx, o.key, o.uid)
		if err != nil {
			fail(fmt.Errorf("%s: %w", o.key, err))
			pause := s.failures.When(o.key)
			s.do(func(*book) {
				again := s.now().Add(pause)
				for _, ln := range stored[o] {
					ln.due = again
				}
			})
			continue
		}
		s.failures.Forget(o.key)
		s.do(func(b *book) {
			for _, ln := range stored[o] {
				b.outlive(s.now(), ln, version)
			}
		})
	}
	for in, lines := range creates {
		if err := s.endCreates(ctx, in, lines); err != nil {
			fail(fmt.Errorf("%s in namespace %q: %w", in.kind, in.namespace, err))
		}
	}
	return failed
}

// endCreates ends grants to creates of claims of one kind in one namespace. A claim is read by itself where its name is final, and is looked for in a list
// of all otherwise: one list ends all grants that were due when it began. Lists are so far apart that they take a small part of the time; the grants stay
// open meanwhile.
func (s *sweeper) endCreates(ctx context.Context, in listing, lines []*line) error {
	names := map[string][]*line{}
	var listed []*line
	s.do(func(*book) {
		for _, ln := range lines {
			if _, known := names[ln.final]; ln.final == "" || !known && len(names) == readLimit {
				listed = append(listed, ln)
			} else {
				names[ln.final] = append(names[ln.final], ln)
			}
		}
	})
	for name, lines := range names {
		c, there, err := s.source.Read(ctx, Key{Kind: in.kind, Namespace: in.namespace, Name: name})
		if err != nil {
			return err
		}
		s.do(func(b *book) {
			for _, ln := range lines {
				if there && c.Token == ln.Token {
					b.read(ln, []string{c.UID})
				} else {
					b.read(ln, nil)
				}
			}
		})
	}
	now := time.Now()
	if len(listed) == 0 || now.Before(s.scans[in]) {
		return nil
	}
	stored := map[journal.Token][]string{} // UIDs
	err := s.source.Scan(ctx, in.kind, in.namespace, func(c Claim) { stored[c.Token] = append(stored[c.Token], c.UID) })
	maps.DeleteFunc(s.scans, func(_ listing, until time.Time) bool { return until.Before(now) })
	s.scans[in] = time.Now().Add(max(scanEvery, scanShare*time.Since(now)))
	if err != nil {
		return err
	}
	s.do(func(b *book) {
		for _, ln := range listed {
			b.read(ln, stored[ln.Token])
		}
	})
	return nil
}
