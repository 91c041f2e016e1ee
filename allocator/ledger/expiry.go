package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/client-go/util/workqueue"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
)

const (
	expireEvery   = time.Second      // between two rounds that expire grants and end cooldowns
	fenceLimit    = 10 * time.Second // for the writes of one round
	fenceRetryMin = time.Second      // after a failed write; doubled after each further failure
	fenceRetryMax = 30 * time.Second
	readLimit     = 16               // claims of a resource in one namespace that one round reads by name
	scanEvery     = 10 * time.Second // least time between two lists of the claims of a resource in one namespace
	scanShare     = 20               // lists take at most one in scanShare of the time
)

// tickEverySecond ends cooldowns, also while this replica follows: otherwise ended
// cooldowns would accumulate, and their ranges would look unavailable on this replica
// after another replica has allocated them again.
func (l *Ledger) tickEverySecond(ctx context.Context, source Source) {
	for journal.Pause(ctx, expireEvery) == nil {
		l.checkReadAccess(source)
		l.withState(func(s *state.State) { s.Tick(l.now()) })
	}
}

// expireEverySecond ends grants whose life has passed, while the term lasts.
func (l *Ledger) expireEverySecond(ctx context.Context, source Source) {
	nextReread := time.Now().Add(logEvery)
	lateRead, lateTried := false, false // the read after the writes of earlier leaders: whether it has succeeded, and whether it was tried
	e := &expirer{
		Ledger: l, source: source, scans: map[listing]time.Time{},
		failures: workqueue.NewTypedItemExponentialFailureRateLimiter[Key](fenceRetryMin, fenceRetryMax),
	}
	for journal.Pause(ctx, expireEvery) == nil {
		late := false
		l.withState(func(s *state.State) {
			late = !lateRead && s.EarlierWritesEnded()
			l.cfg.Metrics.setShares(s.JournalShares(maxShares))
		})
		// The first late read precedes the expiry of inherited grants: an inherited grant
		// may be of a range that an earlier leader recorded late.
		if now := time.Now(); !now.Before(nextReread) || late && !lateTried {
			nextReread, lateTried = now.Add(logEvery), late
			lateRead = l.rereadMovedRecords(ctx, source, late) || lateRead
		}
		var due []*state.OpenGrant
		l.withState(func(s *state.State) { due = s.ExpiredGrants(l.now()) })
		if len(due) == 0 {
			continue
		}
		if err := e.expireGrants(ctx, due); err != nil && ctx.Err() == nil {
			l.logErrorLimited(fmt.Errorf("%d grants: %w", len(due), err), "Ending expired grants failed; retrying")
		}
	}
}

// expirer ends grants whose life has passed. One goroutine uses it.
type expirer struct {
	*Ledger
	source   Source
	failures workqueue.TypedRateLimiter[Key] // of writes to stored objects
	scans    map[listing]time.Time           // -> earliest time of the next list
}

// listing identifies one list: the claims of a resource in one namespace. The listing of
// standby grants is the zero value: all claims of all resources.
type listing struct{ resource, namespace string }

// expireGrants ends the grants whose life has passed and whose object is not stored. It
// returns the first error; an object that cannot be read or written keeps only its own
// grants open.
//
//	grant                               ends when
//	to a create                         no stored claim has its token, or the claims with its token have been observed
//	standby, of an earlier leader       the same, after a list of all claims of each resource
//	to a stored claim, or to a pool     the object was fenced (written to), so that no older write can store the range, and the fence has been observed
//	to a resource of a later release    at once: this release cannot read its objects
//
// The fence must be observed, because the next leader waits for observed versions only.
// Without the observation the next leader would not know of a write that landed just
// before the fence.
func (e *expirer) expireGrants(ctx context.Context, due []*state.OpenGrant) (failed error) {
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
	stored, creates := map[object][]*state.OpenGrant{}, map[listing][]*state.OpenGrant{}
	for _, g := range due {
		ended := false
		e.withState(func(s *state.State) { ended = s.ExpireObserved(g, !g.IsStandby() && !e.isCounted(g.Resource)) })
		switch o := (object{g.StoredObject(), g.UID}); {
		case ended:
		case g.StoredName != "":
			if stored[o] == nil {
				order = append(order, o)
			}
			stored[o] = append(stored[o], g)
		default:
			in := listing{}
			if !g.IsStandby() {
				in = listing{g.Resource, g.Namespace}
			}
			creates[in] = append(creates[in], g)
		}
	}
	for _, o := range order {
		if ctx.Err() != nil || time.Since(started) > fenceLimit { // the next look continues
			break
		}
		version, err := e.source.FenceWrites(ctx, o.key, o.uid)
		if err != nil {
			fail(fmt.Errorf("%s: %w", o.key, err))
			pause := e.failures.When(o.key)
			e.withState(func(s *state.State) { s.RetryFenceAt(e.now().Add(pause), stored[o]) })
			continue
		}
		e.failures.Forget(o.key)
		e.withState(func(s *state.State) {
			for _, g := range stored[o] {
				s.RecordFence(e.now(), g, version)
			}
		})
	}
	for in, grants := range creates {
		if err := e.expireCreateGrants(ctx, in, grants); err != nil {
			fail(fmt.Errorf("%s in namespace %q: %w", cmp.Or(in.resource, "all claims"), in.namespace, err))
		}
	}
	return failed
}

// expireCreateGrants ends grants to creates of claims of one resource in one namespace.
// It reads a claim with a final name by name, and finds the other claims in a list of all
// claims: one list ends all grants that had expired when the list began. The pause
// between lists bounds their share of the time; the grants stay open meanwhile.
func (e *expirer) expireCreateGrants(ctx context.Context, in listing, grants []*state.OpenGrant) (failed error) {
	byName := map[string][]*state.OpenGrant{}
	var unnamed []*state.OpenGrant
	e.withState(func(*state.State) {
		for _, g := range grants {
			name := g.FinalName()
			if _, known := byName[name]; name == "" || !known && len(byName) == readLimit {
				unnamed = append(unnamed, g)
			} else {
				byName[name] = append(byName[name], g)
			}
		}
	})
	for name, grants := range byName {
		c, found, err := e.source.ReadClaim(ctx, Key{Resource: in.resource, Namespace: in.namespace, Name: name})
		if err != nil {
			failed = err
			continue
		}
		e.withState(func(s *state.State) {
			for _, g := range grants {
				if found && c.Token == g.Token {
					s.RecordCarriers(g, []string{c.UID})
				} else {
					s.RecordCarriers(g, nil)
				}
			}
		})
	}
	now := time.Now()
	if len(unnamed) == 0 || now.Before(e.scans[in]) {
		return failed
	}
	carriers := map[journal.Token][]string{} // -> UIDs
	resources := []string{in.resource}
	if in.resource == "" { // standby grants of an earlier leader
		resources = e.cfg.ClaimResources
	}
	var err error
	for _, resource := range resources {
		if err == nil {
			err = e.source.ScanClaims(ctx, resource, in.namespace, func(c Claim) { carriers[c.Token] = append(carriers[c.Token], c.UID) })
		}
	}
	maps.DeleteFunc(e.scans, func(_ listing, until time.Time) bool { return until.Before(now) })
	e.scans[in] = time.Now().Add(max(scanEvery, scanShare*time.Since(now)))
	if err != nil {
		return err
	}
	e.withState(func(s *state.State) {
		for _, g := range unnamed {
			s.RecordCarriers(g, carriers[g.Token])
		}
	})
	return failed
}
