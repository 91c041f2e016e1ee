package ledger

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const modelSteps = 1200

// setting reads a number from the environment.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, text, err)
	}
	return n
}

// explore runs schedules until one fails in a way that counts or all have run, and gives the failing seed.
func explore(first, count uint64, breaks modelBreaks, counts func(error) bool) (seed uint64, total tally, failed error) {
	var next atomic.Uint64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				n := next.Add(1) - 1
				mu.Lock()
				stop := failed != nil
				mu.Unlock()
				if n >= count || stop {
					return
				}
				w := newWorld(first+n, breaks, false)
				err := w.run(modelSteps)
				mu.Lock()
				total.add(w.tally)
				mu.Unlock()
				if err != nil && counts(err) {
					mu.Lock()
					if failed == nil {
						seed, failed = first+n, err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return seed, total, failed
}

// TestModelNoAddressIsGivenTwice runs random schedules of the whole protocol. MODEL_SCHEDULES sets how many, MODEL_SEED where they
// start: a failing seed run alone prints what happened.
func TestModelNoAddressIsGivenTwice(t *testing.T) {
	count, first := setting(t, "MODEL_SCHEDULES", 1500), setting(t, "MODEL_SEED", 1)
	seed, total, err := explore(first, count, modelBreaks{}, func(error) bool { return true })
	if err != nil {
		w := newWorld(seed, modelBreaks{}, true)
		_ = w.run(modelSteps)
		t.Fatalf("MODEL_SEED=%d: %v\n%s", seed, err, strings.Join(w.trace, "\n"))
	}
	if min(total.creates, total.takeOvers, total.ended, 2*total.fulfilled, 16*total.extended, 2*total.standIns, 2*total.departed, 8*total.marked, 8*total.replaced, 16*total.returned, 2*total.restores, 2*total.setBack, 2*total.changes, 16*total.unserved, 4*total.denied, 32*total.broughtBack, 16*total.forced) < count/2 {
		t.Errorf("%d schedules came to no more than %+v", count, total)
	}
	t.Logf("%d schedules of %d steps from seed %d: %+v", count, modelSteps, first, total)
}

// A seed that fails is of use only if it fails again. It is the book that is tested here too: what it decides is in no map's order.
func TestAScheduleIsTheSameEachTime(t *testing.T) {
	for seed := range uint64(150) {
		first, second := newWorld(seed, modelBreaks{}, true), newWorld(seed, modelBreaks{}, true)
		_, _ = first.run(modelSteps), second.run(modelSteps)
		if diff := cmp.Diff(first.trace, second.trace); diff != "" {
			t.Fatalf("seed %d (-first +second):\n%s", seed, diff)
		}
	}
}

// TestModelFindsEachBreak switches the protocol's rules off one by one. A model that did not notice would prove nothing.
func TestModelFindsEachBreak(t *testing.T) {
	for name, breaks := range map[string]modelBreaks{
		"a name asked again gets its range under the same token":   {breaks: breaks{shareToken: true}},
		"a name asked again is answered from memory":               {breaks: breaks{answerFromMemory: true}},
		"a token that comes in with a create is trusted":           {trustToken: true},
		"a new holder serves from a mirror that lags":              {noWatermark: true},
		"a stored claim's grant ends without a write to the claim": {noTouch: true},
		"a stored claim's grant ends before that write is seen":    {unseenTouch: true},
		"what stands in for a claim has nothing when that goes":    {breaks: breaks{noHeir: true}},
		"a replica goes on where etcd was restored":                {noSetBack: true},
		"a change of the pool is checked against an older version": {staleChange: true},
		"a new holder serves in the middle of a list":              {noRefresh: true},
		"what went to another cluster is free when it is gone":     {breaks: breaks{freeAway: true}},
		"a pool without its list frees what was on it":             {breaks: breaks{absenceFrees: true}},
		"objects of an API that is switched off are not counted":   {uncounted: true},
		"nor waited for what the journal claims and hides":         {unclaimed: true},
		"a restored object is its claim's, whatever its range":     {breaks: breaks{coverByName: true}},
	} {
		t.Run(name, func(t *testing.T) {
			seed, _, err := explore(1, setting(t, "MODEL_BREAK_SCHEDULES", 300_000), breaks, func(err error) bool { return errors.Is(err, errTwice) || errors.Is(err, errNotOffered) })
			if err == nil {
				t.Fatal("not found")
			}
			t.Logf("seed %d: %v", seed, err)
		})
	}
}
