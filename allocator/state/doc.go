// Package state is the state machine of owners and grants: which claim owns which range,
// and which ranges are granted in admission responses whose object has not been observed.
// Package ledger adds concurrency, leadership, commits and expiry.
//
// The package is pure: no clock, I/O, locks or logging. Callers pass the time. Equal
// sequences of calls give equal results.
//
// # Parts
//
//	leadership     own term and earlier terms, quarantine (leadership.go)
//	proofs         commits and reads that prove leadership, and what awaits one (proof.go)
//	commitQueue    what waits for a commit or a read of the journal (commit.go)
//	knownPools     pools and their windows (knownpools.go)
//	claims         stored claims and address objects, owners of a pool, deferred claims (claims.go)
//	holdings       holdings by ID, claim and request (holdings.go)
//	openGrants     open grants, from queued to committed (opengrants.go)
//	standbyGrants  grants before a create requests them (standby.go)
//	cooldowns      holdings in cooldown or moved, by pool (cooldowns.go)
//	moves          moved holdings that wait for a decision (moved.go)
//	movedRecords   stored records of moved ranges (movedrecord.go)
//	journalRoom    the journal's bytes, by namespace (journalroom.go)
//	access         versions applied, objects counted and denials of a resource (access.go)
//
// # States of a range
//
// A range that is not free belongs to a holding, in one of six states (holding.state):
//
//	        reserveRanges            bindClaim                    detachClaim                     endCooldown
//	free ──────────────▶ reserved ──────────────▶ bound ─────────────────────────▶ cooldown ──────────────▶ free
//	                        │  expired: endGrant    │ ▲   marked as moved            ▲
//	                        └──────────▶ free       │ └────────────┐                 │ not moved: DecideMoved
//	                                                └──────────▶ moved ──────────────┘
//	                                                               └──▶ free, when a person removes the range from the pool's cooldown list, or the pool is gone
//
//	bound ──▶ free              detachClaim: the pool has no reuse delay, as the pool of a ProxyVIP, or the claim does not name the range any more
//	moved ──▶ reserved          addGrant: the claim comes back. If that grant ends, the range is moved again
//	moved ──▶ free              DecideMoved: not moved, and the pool has no reuse delay
//	free  ──▶ bound             bindClaim: a claim is stored without a grant
//	free  ──▶ cooldown, moved   applyRecordedCooldown, keepMoved: a process that started after the release reads the records of the pool, or the moved record
//
//	inherited   reserved by an earlier leader: never granted again, becomes bound or expires
//	withheld    removed from a pool by an admitted update: free when the update has been observed or expires
//
// # Rules
//
// Grants. Each grant has its own token, even if the grant repeats a range for a claim. A
// grant ends when an object with its token is observed, or when a grant life has passed
// since its commit (an inherited grant: since the take-over) and a consistent read shows
// no object with the token. A grant to a stored claim ends when the claim has been fenced
// (written to, so that no write based on an older version can be stored) and the fence
// has been observed: a new leader waits until it has observed as much as this leader, so
// the new leader needs no journal entry to know the outcome of the grant.
//
// Standby grants (standby.go). The leader commits grants for the ranges that the next
// creates would get, before they are requested. A create that gets such a range uses the
// standby grant and its token, without a commit. The ranges of unused standby grants
// count as free. Those of an earlier leader do not, as an object with their token may be
// stored; so pools with few free addresses have none.
//
// Journal (journalroom.go). Open grants and withheld ranges of a namespace use a share of
// the journal that shrinks with the room that others leave: whatever one or several
// namespaces do, there is room for a namespace without open grants.
//
// Proofs (proof.go). A replica that was suspended may have been replaced. A used standby
// grant is approved (CheckGrant) only after a commit, or a read of the journal, that
// began after the request and shows that this replica leads. The same holds for a standby
// grant of an earlier leader, which may have been used after that leader was replaced:
// its life begins anew with the proof.
//
// Confirmation. A claim may be marked as Ready only after a commit that began after the
// claim got its holding: the commit proves that this replica still led when it observed
// the claim. If the journal contained the grant of the claim, a read of the journal is a
// proof too. Until then Ownership.Confirmed is false, also in a new term of the same
// replica.
//
// Stored objects count. A claim with ranges of which this process knows no grant, such as
// a claim stored without admission, owns the addresses that are free if one of these
// holds: (a) the claim carries a token: the validating webhook admits a token only with
// an open grant, so the grant has left the journal (a token that a person invented while
// the webhooks were not installed counts too); (b) its status records an earlier
// allocation; (c) its pool offers the addresses and no pool blocks them. (a) and (b) do
// not count for a claim whose addresses differ from those that the allocator has recorded
// (isAltered): they were changed while the webhooks were not installed. Otherwise the
// claim is deferred: it owns nothing and is evaluated again when its pool changes, before
// the pool allocates further addresses. Without this rule, every user with the right to
// create claims could own every address.
//
// Routing domain of an owner. A claim owns its addresses in the routing domain in which
// they were granted. The admission response, or the reconciler for a grant to a stored
// claim and for an adopted claim, stores that domain on the claim
// (Claim.RoutingDomainGranted), and the validating webhook guards it as the rest of the
// answer. It does not follow the pool. The first row that applies decides (keepDomain,
// routingDomainOf):
//
//	claim                                                          its addresses are owned in
//	an open grant has its token                                    the routing domain of the grant
//	owner; the observed version has the token of the version       the routing domain of the version before: another client has changed the record,
//	before, and records another routing domain or none             and a reconciler restores it
//	records a routing domain                                       that routing domain
//	no record (of an earlier version, or stored without            the routing domain of its pool; with a label of another routing domain it has entered: it is weaker
//	admission), and the pool is known                              than every owner there, whatever its age (compareStrength)
//	no record, and the pool is missing, or no pool                 the routing domain of its label
//	address object without a record, whose claim owns the range    the routing domain of its claim
//
// A pool in another routing domain than the claim that names it is a different pool for
// the claim, as if the pool were missing: no cooldown, no moved record, and no offer. A
// pool is denied if it would be in another routing domain than a claim that names it,
// while the address of the claim has another owner there (FindStrandedOwner): two owners
// of an address would name one pool. If two claims are Ready in one conflict, which needs
// a record that was changed while no process observed it, the claim whose pool is in the
// routing domain is stronger.
//
// Conflicts. If two claims name an address, the stronger claim owns the address
// (compareStrength): stored as Ready, then with a grant that this process has known as
// open, then with a pool in the routing domain, then with a token, then older, then the
// smaller UID. The weaker claim keeps the addresses without a conflict and is flagged:
// its status reports the conflict.
//
// Address objects. An IPAddress owns a range for its claim. While the claim owns the
// range too, claim and address object are one owner; the range is free when the claim and
// the address object are gone.
//
// Moved claims. A range whose claim was moved to another cluster is not free: the claim
// owns the range in the other cluster. The moved record and the cooldown list of the pool
// keep the range, and only the claim gets the range back.
//
// Cooldown. The deletion of a claim has two events. "Deletion requested": the claim has a
// deletionTimestamp (Claim.Deleting, claim.deletingSince), and owns its range. "Gone":
// the delete event has been applied (RemoveClaim). From the begin of a cooldown on, three
// stores show other processes which ranges stay unallocated:
//
//	release records   status.releases of a NetworkPool: one record for each IPAllocation that reached phase Released
//	cooldown list     annotation butler.butlerlabs.dev/cooldown of a NetworkPool or IPPool: the cooldowns without a release record, and moved ranges
//	moved record      ConfigMaps in the manager's namespace: all moved ranges of a pool, also those without room in the cooldown list (movedrecord.go)
//
// Pool.Recorded has the entries of the release records and of the cooldown list: the
// pool's records. RangesToRecord has the ranges that the pool's records should contain.
// The deletion of the pool deletes the records, and ends all cooldowns of the pool
// (RemovePool).
//
// The range of a claim gets its cooldown from the first of these steps, and no later step
// begins the cooldown again:
//
//	IPAllocation               the release record, observed while the claim is still stored, sets the end (applyRecordedCooldown)
//	IPClaim, IPAddressClaim    BeginCooldown sets the end, and the finalizer waits for the cooldown list
//	each claim, at the latest  RemoveClaim sets the end, as for a flagged IPAllocation, or a claim whose finalizer was removed by another client
//
// The times in a record are by the API server's clock, as the author of the record
// estimated it. A process converts the times to its own monotonic clock when it first
// observes the record, by the offset recordClock (SetRecordClockAhead), and keeps
// the result: later settings of a clock change no known cooldown. Bounds: the cooldown
// ends at most the pool's reuse delay after the observation, so the record of a clock
// that was ahead does not last; and not before deletingSince + reuse delay, so the record
// of a clock that was behind does not shorten the cooldown.
//
// Addresses in use (inuse.go). Nodes, Machines and Services have addresses that no claim
// requested. In the routing domain of the cluster's network these addresses are not
// allocated, unless a claim owns them already. That routing domain is configured, or the
// default one if a pool is there; otherwise nothing shows which one it is, and the rule
// holds in each.
//
// Pool updates. Addresses that a pool update removes are withheld from the time the
// update is admitted until the new version is observed or can no longer be stored.
// Current owners keep their addresses; after release those addresses are not allocated
// again.
//
// Check verifies the invariants. The model check runs several states as replicas of a
// cluster through random schedules.
package state
