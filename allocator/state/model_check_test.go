package state

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

// envNumber reads a number from the environment.
func envNumber(t *testing.T, name string, otherwise uint64) uint64 {
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

// explore runs schedules until one fails with an error that counts accepts or all have
// run, and returns the failing seed and the tally.
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

// TestModel_NoAddressIsOwnedTwice runs random schedules of the whole protocol.
// MODEL_SCHEDULES sets the number of schedules, MODEL_SEED the first seed. A failing
// schedule is run again with its trace, which the test prints.
func TestModel_NoAddressIsOwnedTwice(t *testing.T) {
	count, first := envNumber(t, "MODEL_SCHEDULES", 1500/modelDivisor), envNumber(t, "MODEL_SEED", 1)
	seed, total, err := explore(first, count, modelBreaks{}, func(error) bool { return true })
	if err != nil {
		w := newWorld(seed, modelBreaks{}, true)
		_ = w.run(modelSteps)
		t.Fatalf("MODEL_SEED=%d: %v\n%s", seed, err, strings.Join(w.trace, "\n"))
	}
	for _, covered := range []struct {
		what     string
		times, n uint64 // at least once in n schedules
	}{
		{"creates", total.creates, 2},
		{"take-overs", total.takeOvers, 2},
		{"expired grants", total.expired, 2},
		{"grants to stored claims", total.grantedToStored, 4},
		{"extended claims", total.extended, 32},
		{"address objects", total.addressObjects, 4},
		{"moved claims", total.moved, 4},
		{"claims marked by a user", total.markedByUser, 16},
		{"replaced pools", total.poolsReplaced, 16},
		{"returned claims", total.movedBack, 32},
		{"restores of etcd", total.restores, 4},
		{"deleted journals", total.journalsLost, 4},
		{"leaders in quarantine", total.ledQuarantined, 4},
		{"owned ranges granted in quarantine", total.ownedInQuarantine, 64},
		{"restarts by a restore", total.restartedByRestore, 4},
		{"pool updates", total.poolUpdates, 4},
		{"leaders that do not serve an API", total.ledUnserved, 32},
		{"denied reads", total.readsDenied, 8},
		{"objects recreated from a backup", total.recreated, 384},
		{"denials of the small pool", total.smallPoolFull, 16},
		{"denials for lack of room in the journal", total.journalFull, 16},
		{"removed finalizers", total.finalizersRemoved, 32},
		{"pools made anew in another routing domain", total.poolsRemade, 8},
		{"changed records of routing domains", total.recordsChanged, 16},
		{"grants of addresses in use in another routing domain", total.grantedInUse, 128},
		{"denials of addresses in use", total.deniedInUse, 16},
		{"used standby grants", total.standbyUsed, 2},
		{"proofs by a read", total.proofsRead, 2},
		{"reads that prove nothing", total.proofsFailed, 16},
		{"approved inherited standby grants", total.approvedInherited, 512},
		{"creates stored without proof and validation", total.unapproved, 16},
	} {
		if count >= max(100, covered.n) && covered.times*covered.n < count { // fewer schedules are run to debug one of them, and prove nothing about rare events
			t.Errorf("%d schedules covered too few %s: %d, want at least one in %d schedules", count, covered.what, covered.times, covered.n)
		}
	}
	t.Logf("%d schedules of %d steps from seed %d: %+v", count, modelSteps, first, total)
}

// TestModel_ScheduleIsReproducible runs schedules twice: equal seeds give equal traces.
// State is tested too: no decision depends on the order of a map.
func TestModel_ScheduleIsReproducible(t *testing.T) {
	for seed := range uint64(150 / modelDivisor) {
		first, second := newWorld(seed, modelBreaks{}, true), newWorld(seed, modelBreaks{}, true)
		_, _ = first.run(modelSteps), second.run(modelSteps)
		if diff := cmp.Diff(first.trace, second.trace); diff != "" {
			t.Fatalf("seed %d (-first +second):\n%s", seed, diff)
		}
	}
}

// TestModel_FindsEachBreak switches off the rules of the protocol one by one. A model
// check that found no violation then would prove nothing.
func TestModel_FindsEachBreak(t *testing.T) {
	if modelDivisor > 1 {
		t.Skip("the search takes 25 times as long with the race detector, and the tests without the race detector do it")
	}
	for name, breaks := range map[string]modelBreaks{
		"a repeated request gets its range under the earlier token":                          {breaks: breaks{shareToken: true}},
		"a repeated request is granted without a commit":                                     {breaks: breaks{grantWithoutCommit: true}},
		"the token that arrives with a create is trusted":                                    {trustBroughtToken: true},
		"a new leader serves from lagging copies":                                            {noWatermark: true},
		"a grant to a stored claim expires without a fence":                                  {noFence: true},
		"a grant to a stored claim expires before its fence is observed":                     {unobservedFence: true},
		"an address object does not inherit the range of its claim":                          {breaks: breaks{noInheritance: true}},
		"a replica keeps its state after etcd was restored":                                  {ignoreRestore: true},
		"a pool update is validated against an older version":                                {staleValidation: true},
		"a new leader serves in the middle of a relist":                                      {partialList: true},
		"the range of a moved claim is free after its deletion":                              {breaks: breaks{freeMoved: true}},
		"a pool without its list frees the moved ranges":                                     {breaks: breaks{missingListFrees: true}},
		"claims of an API that is switched off are not observed":                             {ignoreUnserved: true},
		"a new leader does not wait for claims that it cannot read":                          {ignoreUnreadable: true},
		"a create is approved without a proof of leadership":                                 {breaks: breaks{approveUnproven: true}},
		"a proof that is older than the request counts":                                      {breaks: breaks{oldProof: true}},
		"a standby grant is used twice":                                                      {breaks: breaks{reuseStandby: true}},
		"a new leader does not inherit standby grants":                                       {breaks: breaks{dropStandby: true}},
		"a pool with few addresses has standby grants":                                       {noStandbyRoom: true},
		"a full pool grants an inherited standby range again":                                {breaks: breaks{reuseInherited: true}},
		"a namespace uses the journal regardless of others":                                  {breaks: breaks{ignoreShares: true}},
		"a restored address object belongs to its claim, whatever its range":                 {breaks: breaks{ownByName: true}},
		"an owner follows its pool into another routing domain":                              {breaks: breaks{followPool: true}},
		"a new leader grants although the journal was deleted":                               {ignoreLostJournal: true},
		"a new leader serves from lagging copies after a deletion":                           {lostUnlisted: true},
		"a new leader grants free ranges to stored claims in quarantine":                     {breaks: breaks{grantUnowned: true}},
		"addresses in use stay avoided everywhere with the first pool of the default domain": {breaks: breaks{avoidsTooMuch: true}},
		"addresses in use stay free elsewhere without a pool of the default domain":          {breaks: breaks{avoidsTooLittle: true}},
		"the record of a routing domain is believed, whoever wrote it":                       {breaks: breaks{believeRecord: true}},
	} {
		t.Run(name, func(t *testing.T) {
			seed, _, err := explore(1, envNumber(t, "MODEL_BREAK_SCHEDULES", 300_000), breaks, func(err error) bool {
				return errors.Is(err, errOwnedTwice) || errors.Is(err, errNotOffered) || errors.Is(err, errKeptForNobody) || errors.Is(err, errCrowdedOut) || errors.Is(err, errInUse)
			})
			if err == nil {
				t.Fatal("no violation found")
			}
			t.Logf("seed %d: %v", seed, err)
		})
	}
}

// FuzzModel_NoAddressIsOwnedTwice runs schedules. The fuzzer chooses seed and length.
func FuzzModel_NoAddressIsOwnedTwice(f *testing.F) {
	f.Add(uint64(1), uint16(300))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		w := newWorld(seed, modelBreaks{}, true)
		if err := w.run(int(steps) % modelSteps); err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(w.trace, "\n"))
		}
	})
}
