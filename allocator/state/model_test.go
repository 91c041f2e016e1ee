package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// The model check runs the allocation protocol through random schedules against a
// modelled cluster, and fails if an address gets two owners.
//
// Modelled: an API server (admission calls, writes conditional on resourceVersion, watch
// events, restores of etcd from a backup), the journal Lease (compare-and-swap), two or
// three replicas (each a State, a watch position and a phase of follower or leader), and
// clients (users, tools that move claims to other clusters, writers that bypass
// admission). Half of the creates are not validated: a create that was answered from a
// standby grant without a proof counts as stored without admission then. Faults: lost
// replies, late and stalled writes, repeated calls, replicas that pause or restart
// between any two steps, watches that end and relist, denied reads.
//
// One step (world.step) advances the clock by a random duration and runs one action of a
// client, the API server, the network or one replica.
//
// Invariants, checked at every stored object (world.store):
//
//	Invariant: no two objects of different owners name one address of a routing domain (unless one was stored without admission; and then not both are Ready).
//	Invariant: a range that a committed record of moved ranges contains is stored for its claim alone (model_moves_test.go).
//	Invariant: a stored claim names only addresses that its pool offers at the time (model_pools_test.go).
//	Invariant: a grant has no address that is in use in the routing domain of the cluster's network (model_inuse_test.go).
//	Invariant: neither unused standby grants nor other namespaces cost a create (model_rooms_test.go).
//	Invariant: a token is in the responses to one admission request only.
//
// After every step State.Check runs for every replica. At the end of a schedule the
// faults stop, and the leader's owned addresses must become exactly the stored ones
// (world.settle).
//
// The seed determines the schedule. A failing schedule prints its seed and its trace; to
// run the schedule again:
//
//	MODEL_SEED=<seed> MODEL_SCHEDULES=1 go test ./allocator/state -run TestModel_NoAddressIsOwnedTwice
//
// TestModel_FindsEachBreak removes the rules of the protocol one by one and requires a
// violation for each.

const (
	modelClaims    = "claims.test"
	modelAddresses = "addresses.test" // address objects of claims
	modelOthers    = "others.test"    // claims of an API that a replica may be started without
	modelPools     = "pools.test"
)

var (
	modelPool  = Key{Resource: modelPools, Namespace: "ns", Name: "pool"}
	modelRange = allocator.Range{First: netip.MustParseAddr("10.0.0.0"), Last: netip.MustParseAddr("10.0.0.9")}
	modelIPv6  = allocator.Range{First: netip.MustParseAddr("2001:db8::"), Last: netip.MustParseAddr("2001:db8::5")}
	modelStart = time.Unix(1_000_000, 0)

	modelResources   = []string{modelClaims, modelAddresses, modelOthers, modelPools}
	modelLeaseExpiry = 4 * time.Second // a follower takes over after the journal has not changed for so long
)

// errOwnedTwice reports two owners of one address: the violation that the protocol exists
// to prevent.
var errOwnedTwice = errors.New("owned twice")

// modelBreaks switches off rules of the protocol. The model check must find a violation
// for each break.
type modelBreaks struct {
	breaks
	trustBroughtToken bool // the webhook grants a create the range and token that the create itself carries, if the grant is open
	noWatermark       bool // a new leader serves before its copies have reached the versions that the previous leader applied
	partialList       bool // a new leader compares its newest applied version with the watermark, also in the middle of a relist
	noFence           bool // a grant to a stored claim expires without a fence
	unobservedFence   bool // a grant to a stored claim expires before the fence is observed
	ignoreRestore     bool // a replica keeps its state after etcd was restored from a backup
	staleValidation   bool // a pool update is validated against the pool version the replica has observed, without a live read
	ignoreUnserved    bool // a replica does not observe the claims of an API that is switched off
	noStandbyRoom     bool // small pools have standby grants
	ignoreUnreadable  bool // a replica leads at once although it cannot read the claims that the journal lists
	ignoreLostJournal bool // a new leader grants at once although the journal was deleted
	lostUnlisted      bool // a new leader serves from lagging copies after the journal was deleted
}

// focus enables the faults in which the break shows, so that few schedules are needed to
// find a violation.
func (m modelBreaks) focus(w *world) {
	w.remakesPool = w.remakesPool && m == modelBreaks{} || m.followPool || m.believeRecord || m.avoidsTooMuch || m.avoidsTooLittle
	switch {
	case m.approveUnproven, m.oldProof, m.reuseStandby, m.dropStandby:
		w.standbyGrants, w.bypassesAdmission, w.movesClaims, w.servesPartly = 3, false, false, false
	case m.noStandbyRoom:
		w.standbyGrants, w.smallPool, w.bypassesAdmission, w.movesClaims, w.servesPartly = 3, true, false, false, false
	case m.reuseInherited:
		w.standbyGrants, w.smallPool, w.bypassesAdmission, w.movesClaims, w.servesPartly = 3, false, false, false, false
	case m.ignoreShares:
		w.floods, w.servesPartly = true, false
	case m.ignoreRestore:
		w.restoresEtcd, w.servesPartly = true, false
	case m.staleValidation:
		w.bypassesAdmission, w.movesClaims, w.servesPartly, w.updatesPool = false, false, false, true
	case m.partialList:
		w.relists, w.servesPartly = true, false
	case m.noFence, m.unobservedFence:
		w.stallOdds, w.servesPartly = 1, false
	case m.ignoreUnserved, m.ignoreUnreadable:
		w.servesPartly = true
	case m.ignoreLostJournal, m.lostUnlisted, m.grantUnowned:
		w.losesJournal, w.bypassesAdmission, w.servesPartly = true, false, false
	case m.avoidsTooMuch, m.avoidsTooLittle:
		w.usesAddresses = true
	case m.noInheritance, m.freeMoved, m.missingListFrees, m.ownByName:
		w.bypassesAdmission, w.movesClaims, w.servesPartly = false, true, false
	}
}

// world is the modelled cluster: the stored objects, the requests in flight, the
// replicas, and the faults of the schedule.
type world struct {
	rng     *rand.Rand // the only source of randomness, so that the seed determines the schedule
	breaks  modelBreaks
	now     time.Time
	trace   []string // log of the schedule, if verbose
	verbose bool

	// Stored in etcd.
	resourceVersion    uint64             // of the last write
	objects            map[string]*object // name -> claim or address object
	pool               Pool
	events             []event // all watch events, in order; a replica has a position in the list
	lease              journal.Revision
	movedRecord        []Moved // record of moved ranges in the manager's namespace
	movedRecordVersion int

	// In flight.
	leaseWrites  []*leaseWrite
	updates      []*claimUpdate
	creates      []*createRequest
	poolUpdates  []*poolUpdate
	replicas     []*replica
	uidCount     int                      // UIDs assigned so far
	callCount    int                      // request numbers assigned so far
	callOfToken  map[journal.Token]string // token -> admission call whose response contained the token
	deniedUntil  time.Time                // replicas cannot read modelOthers until then
	backup       *backup                  // of etcd; nil if none was taken since the last restore
	restoreCount int                      // restores of etcd so far

	// Faults and features of the schedule, chosen at its start.
	bypassesAdmission bool    // claims are stored without admission
	movesClaims       bool    // claims have address objects, and are moved to other clusters
	updatesPool       bool    // users update the pool
	relists           bool    // watches end, and replicas list again
	remakesPool       bool    // the pool is made anew in another routing domain, and records of routing domains are changed
	secondDomain      string  // routing domain of the second pool
	servesPartly      bool    // replicas are started with and without the API of modelOthers
	restoresEtcd      bool    // etcd is restored from backups
	losesJournal      bool    // a person deletes the journal, and an earlier allocator stores claims with their address objects
	standbyGrants     int     // of one demand; 0 for none
	smallPool         bool    // a small pool overlaps the pool
	floods            bool    // namespaces flood the journal
	stallOdds         int     // one of stallOdds writes to claims stalls in its connection
	coarseClock       bool    // steps often take seconds, so that grants expire while creates are in flight
	usesAddresses     bool    // Nodes and Services have addresses of the pool; each replica observes them at other times
	clusterDomain     *string // configured routing domain of the cluster's network; nil if none is configured
	settling          bool    // the schedule has ended and no more faults occur

	// Memory of the clients and of the checks.
	lastUnblocked allocator.Range // last address that a pool update stopped blocking
	moved         map[allocator.Range]*movedRange
	markedByUser  map[string]bool // UIDs of claims that a user marked as moved although they were not moved
	earlierPools  []Pool          // versions of the pool with other lists of recorded ranges
	trustedFrom   int             // number of events with the last record of a routing domain that another client had changed
	lostObjects   []*object       // a claim and its address objects, as a backup contains them
	err           error           // first violation

	tally tally
}

// tally counts what a schedule covered. TestModel_NoAddressIsOwnedTwice requires a
// minimum of each, because an idle schedule proves nothing.
type tally struct {
	creates            uint64 // creates stored
	takeOvers          uint64 // replicas that started to serve
	expired            uint64 // grants that expired
	grantedToStored    uint64 // stored claims without a range that received one
	extended           uint64 // stored claims that received an IPv6 address in addition
	addressObjects     uint64 // address objects stored
	moved              uint64 // claims moved to another cluster
	markedByUser       uint64 // claims marked as moved and deleted by a user
	poolsReplaced      uint64 // pools replaced by an older version or without the list of recorded ranges
	movedBack          uint64 // moved claims that returned
	restores           uint64 // restores of etcd
	journalsLost       uint64 // deletions of the journal
	ledQuarantined     uint64 // replicas that started to serve after the journal was deleted
	ownedInQuarantine  uint64 // stored claims that received in quarantine the range of their address object
	restartedByRestore uint64 // replicas that restarted because of a restore
	poolUpdates        uint64 // pool updates stored
	ledUnserved        uint64 // replicas that led while claims of an API that they do not serve were stored
	readsDenied        uint64 // periods of denied reads
	recreated          uint64 // objects recreated from a backup
	standbyUsed        uint64 // creates answered from a standby grant
	proofsRead         uint64 // reads of the journal that proved leadership
	proofsFailed       uint64 // reads that did not
	approvedInherited  uint64 // creates from a standby grant of an earlier leader that validation approved
	unapproved         uint64 // creates from a standby grant without proof, stored without validation
	poolsRemade        uint64 // pools made anew in another routing domain
	recordsChanged     uint64 // records of routing domains changed by other clients
	smallPoolFull      uint64 // creates denied because the small pool is full
	journalFull        uint64 // creates denied because the journal has no room for their namespace
	grantedInUse       uint64 // grants of addresses in use, outside the routing domain of the cluster's network
	deniedInUse        uint64 // exact requests denied as the address is in use
	finalizersRemoved  uint64 // claims deleted by a removed finalizer while their address object was in flight
}

func (t *tally) add(o tally) {
	t.creates += o.creates
	t.takeOvers += o.takeOvers
	t.expired += o.expired
	t.grantedToStored += o.grantedToStored
	t.extended += o.extended
	t.addressObjects += o.addressObjects
	t.moved += o.moved
	t.markedByUser += o.markedByUser
	t.poolsReplaced += o.poolsReplaced
	t.movedBack += o.movedBack
	t.restores += o.restores
	t.journalsLost += o.journalsLost
	t.ledQuarantined += o.ledQuarantined
	t.ownedInQuarantine += o.ownedInQuarantine
	t.restartedByRestore += o.restartedByRestore
	t.poolUpdates += o.poolUpdates
	t.ledUnserved += o.ledUnserved
	t.readsDenied += o.readsDenied
	t.recreated += o.recreated
	t.finalizersRemoved += o.finalizersRemoved
	t.poolsRemade += o.poolsRemade
	t.recordsChanged += o.recordsChanged
	t.standbyUsed += o.standbyUsed
	t.proofsRead += o.proofsRead
	t.proofsFailed += o.proofsFailed
	t.approvedInherited += o.approvedInherited
	t.unapproved += o.unapproved
	t.grantedInUse += o.grantedInUse
	t.deniedInUse += o.deniedInUse
	t.smallPoolFull += o.smallPoolFull
	t.journalFull += o.journalFull
}

// newWorld returns the cluster of a schedule. The seed chooses the faults, as far as the
// breaks do not.
func newWorld(seed uint64, breaks modelBreaks, verbose bool) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 7)), breaks: breaks, now: modelStart, verbose: verbose,
		objects: map[string]*object{}, callOfToken: map[journal.Token]string{}, moved: map[allocator.Range]*movedRange{}, markedByUser: map[string]bool{},
		pool: firstPool(), stallOdds: 4,
	}
	switch w.rng.IntN(4) {
	case 0:
		w.bypassesAdmission = true
	case 1, 2:
		w.movesClaims = true
	default:
		w.servesPartly = w.rng.IntN(2) == 0
		w.remakesPool = !w.servesPartly
	}
	w.restoresEtcd, w.updatesPool, w.relists = w.rng.IntN(4) == 0, w.rng.IntN(3) == 0, w.rng.IntN(3) == 0
	w.usesAddresses = w.breaks == (modelBreaks{}) && w.rng.IntN(4) == 0
	w.losesJournal = w.breaks == (modelBreaks{}) && w.rng.IntN(8) == 0
	w.standbyGrants, w.coarseClock = []int{0, 1, 3}[w.rng.IntN(3)], w.rng.IntN(8) == 0
	w.smallPool, w.floods = w.remakesPool && seed%2 == 0, !w.movesClaims && !w.servesPartly && seed%8 == 0
	w.remakesPool = w.remakesPool && !w.smallPool
	breaks.focus(w)
	if w.remakesPool {
		w.bypassesAdmission, w.movesClaims, w.servesPartly, w.restoresEtcd, w.updatesPool, w.smallPool, w.losesJournal = false, false, false, false, false, false, false
	}
	if w.remakesPool && breaks == (modelBreaks{}) {
		w.usesAddresses = seed%3 > 0
	}
	if w.remakesPool && w.usesAddresses { // the pools show the routing domain of the cluster, or it is configured
		w.secondDomain = []string{"", modelOtherDomain}[seed/2%2]
		if seed%8 == 7 && w.breaks == (modelBreaks{}) {
			w.clusterDomain = &w.secondDomain
		}
	}
	if w.servesPartly {
		w.bypassesAdmission, w.movesClaims, w.restoresEtcd, w.relists, w.losesJournal = false, false, false, false, false
	}
	if w.losesJournal { // an earlier allocator knows neither moved ranges nor the pool's updates
		w.movesClaims, w.updatesPool = false, false
	}
	for i := range 2 + w.rng.IntN(2) {
		r := &replica{id: i, applyShare: []int{4, 20, 120}[w.rng.IntN(3)]}
		w.replicas = append(w.replicas, r)
		w.startReplica(r)
	}
	return w
}

func (w *world) logf(format string, args ...any) {
	if w.verbose {
		w.trace = append(w.trace, fmt.Sprintf("%8.1fs ", w.now.Sub(modelStart).Seconds())+fmt.Sprintf(format, args...))
	}
}

// failf records a violation. The first one ends the schedule.
func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
		w.logf("VIOLATION: %v", w.err)
	}
}

// run makes the given number of random steps, then settles and compares the leader's
// ledger with the stored objects. With a break, run ends after the steps: only violations
// in stored objects count then.
func (w *world) run(steps int) error {
	for n := range steps {
		w.step()
		if n%32 == 0 && w.breaks == (modelBreaks{}) {
			w.checkQueries()
		}
		if w.err != nil {
			return w.err
		}
	}
	if w.breaks == (modelBreaks{}) {
		w.settle()
	}
	return w.err
}

// checkQueries checks the usage and the segments that every State reports.
func (w *world) checkQueries() {
	for _, r := range w.replicas {
		if r.state == nil {
			continue
		}
		if err := errors.Join(r.state.checkUsage(), r.state.checkSegments()); err != nil {
			w.failf("%s: %v", r.name(), err)
		}
	}
}

// step advances the clock, runs one action, and checks every State.
func (w *world) step() {
	w.advanceClock()
	if w.restoresEtcd {
		switch w.rng.IntN(200) {
		case 0:
			w.takeBackup()
		case 1:
			w.restoreEtcd()
		}
	}
	if w.losesJournal {
		switch w.rng.IntN(300) {
		case 0:
			w.loseJournal()
		case 1, 2, 3, 4:
			w.storeEarlier([]string{"a", "b", "c", "d"}[w.rng.IntN(4)])
		}
	}
	if w.servesPartly {
		w.denyReads()
	}
	switch n := w.rng.IntN(100); {
	case n < 7:
		w.stepClient()
	case n < 42:
		w.stepAPIServer()
	case n < 54:
		w.stepNetwork()
	default:
		w.stepReplica(w.pickReplica())
	}
	for _, r := range w.replicas {
		if r.state != nil && w.err == nil && w.breaks == (modelBreaks{}) {
			if err := r.state.Check(); err != nil {
				w.failf("%s: %v", r.name(), err)
			}
		}
	}
}

// advanceClock advances the clock: mostly by milliseconds, rarely by more than the lease
// expiry or the life of a grant.
func (w *world) advanceClock() {
	var d time.Duration
	switch n := w.rng.IntN(1000); {
	case n < 30 && w.coarseClock:
		d = time.Duration(w.rng.IntN(20)) * time.Second
	case n < 960:
		d = time.Duration(w.rng.IntN(10)) * time.Millisecond
	case n < 992:
		d = time.Duration(w.rng.IntN(2000)) * time.Millisecond
	case n < 996:
		d = time.Duration(w.rng.IntN(15)) * time.Second
	default:
		d = time.Duration(w.rng.IntN(180)) * time.Second
	}
	w.now = w.now.Add(d)
}
