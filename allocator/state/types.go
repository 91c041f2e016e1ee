package state

import (
	"cmp"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// Key identifies one object of a served API.
type Key struct {
	Resource  string // plural resource and API group, as in "ipallocations.butler.butlerlabs.dev"
	Namespace string // empty for cluster-scoped resources
	Name      string // empty while the API server has yet to expand generateName
}

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// A place is where a message is read: a namespace; "" for the status of a cluster-scoped
// object; or one of these, which no namespace can be named.
const (
	placeOfLog   = "*" // the log, whose readers may know every owner
	placeUnknown = "-" // the response to a create of a cluster-scoped object: any user may read it, as a dry run is enough to get one
)

// Place returns where the author of an object reads messages about the owners of
// addresses: the namespace of the object; for a ProxyVIP of a Service, the namespace of
// the Service.
func (k Key) Place() string { return cmp.Or(k.StatusPlace(), placeUnknown) }

// StatusPlace returns where readers of a stored object read messages in its status: the
// namespace of the object; for a ProxyVIP of a Service, the namespace of the Service,
// whose events repeat the messages. The place of every other cluster-scoped object is "".
func (k Key) StatusPlace() string { return cmp.Or(k.Namespace, k.serviceNamespace()) }

// SeenFrom names an owner as far as a reader in a place may know the owner: "by
// ipallocations/web". Readers of cluster-scoped objects have the place "" and may know
// every cluster-scoped owner. Two kinds of owners are not named:
//
//   - owners in a namespace that is not the reader's
//   - the ProxyVIP of a Service outside the reader's namespace, as the name of the
//     ProxyVIP contains the name of the Service
func (k Key) SeenFrom(place string) string {
	switch {
	case k.isHiddenFrom(place) && k.Namespace == "":
		return "for a Service of another namespace"
	case k.isHiddenFrom(place) && (place == "" || place == placeUnknown):
		return "by a namespaced object"
	case k.isHiddenFrom(place):
		return "in another namespace"
	case k.Name == "":
		return "by a create that is in flight"
	}
	resource, _, _ := strings.Cut(k.Resource, ".")
	if k.Namespace != "" && k.Namespace != place {
		return "by " + resource + "/" + k.Name + " in namespace " + k.Namespace
	}
	return "by " + resource + "/" + k.Name
}

// isHiddenFrom reports whether a reader in a place may not know the name of the object.
func (k Key) isHiddenFrom(place string) bool {
	of := k.Namespace
	if of == "" && place != "" {
		of = k.serviceNamespace()
	}
	return of != "" && place != placeOfLog && of != place
}

// serviceNamespace returns the namespace of the Service of a ProxyVIP named
// svc-NAMESPACE.SERVICE; "" if k is no ProxyVIP of a Service.
func (k Key) serviceNamespace() string {
	name, isOf := strings.CutPrefix(k.Name, "svc-")
	if namespace, _, found := strings.Cut(name, "."); isOf && found && strings.HasPrefix(k.Resource, "proxyvips.") {
		return namespace
	}
	return ""
}

// Pool is an object that offers ranges, with the properties that the ledger needs.
type Pool struct {
	Key             Key
	ResourceVersion uint64 // a version that is not newer than the known version is ignored
	RoutingDomain   string // routing domain; "" is the default routing domain
	Window          []allocator.Range
	Fault           string                             // rule that the pool breaks; Window is empty then. "" for a valid pool
	Readable        []allocator.Range                  // readable ranges of a pool with a fault: the pool may have allocated from them earlier
	Ordered         bool                               // allocates from the ranges of Window in their order; otherwise the ranges are one set
	Blocked         []allocator.Range                  // ranges that no pool of the routing domain allocates, but for a request with IgnorePoolBlocks
	KeptFor         func(claim string) allocator.Range // the range of Blocked that the pool keeps for the claim with a name; nil if no range is kept for a claim. A grant uses IgnorePoolBlocks instead
	// WhatIsBlocked describes a range of Blocked and names its field: "is the gateway
	// (spec.gateway)". WhyOutside returns why the pool leaves a range out of Window, ""
	// if the pool never offered the range. Each of the two may be nil.
	WhatIsBlocked func(allocator.Range) string
	WhyOutside    func(allocator.Range) string
	MayBlockOwned bool             // an update may block an owned range: the owner keeps the range
	Policy        allocator.Policy // nil means BestFit
	Manual        bool             // allocates only ranges that are requested by address
	ReuseDelay    time.Duration    // length of a cooldown
	UID           string
	Recorded      []RecordedRange // from status.releases and from the annotation: the release records and the cooldown list, see the package documentation
	// MovedListRevision is the revision of the pool's list of moved ranges: the
	// resourceVersion of the pool on which the list is based. If a list of this revision
	// or an earlier revision showed a range that the list lacks, a person removed the
	// range. The revision is 0 if the absence of a range means nothing: the list is
	// missing, unreadable, or of a pool with a different UID.
	MovedListRevision uint64
	Deleting          bool
	Paused            bool   // allocates only ranges that are requested by address
	Cluster           string // Cluster API Cluster, in the pool's namespace, to which the pool belongs; "" for none
}

// RecordedRange is a range of a pool's records: its release records and its cooldown
// list. With Until set, the range is in cooldown until then. With a zero Until, the range
// is moved: its claim owns the range in another cluster, and only a claim of that name
// gets the range back.
type RecordedRange struct {
	Range    allocator.Range
	Since    time.Time // begin of the cooldown, zero if not known: a shorter ReuseDelay ends the cooldown earlier
	Until    time.Time
	Claim    Key    // of a moved range
	MovedUID string // UID of the moved object; "" if not known
}

// Claim is a stored object that requests addresses, with the properties that the ledger
// needs.
type Claim struct {
	Key                  Key // with a name, if the object is stored
	UID                  string
	ResourceVersion      uint64
	Created              time.Time
	Pool                 Key               // zero for a claim without a pool
	RoutingDomain        string            // routing domain that the claim names: in which its ranges were granted (RoutingDomainGranted), else of its label
	RoutingDomainGranted bool              // the claim records the routing domain of its ranges; otherwise the domain of its known pool has precedence over RoutingDomain
	Ranges               []allocator.Range // empty while the claim has no range
	Token                journal.Token     // zero if no grant covers the ranges
	Ready                bool              // stored as Ready (a ProxyVIP: condition Bound): its addresses may be in use
	AllocatedEarlier     bool              // the status records an allocation, by this allocator or by another program that managed the claim before
	Altered              bool              // the status records other ranges than the claim names: see isAltered
	Flagged              bool              // the stored status reports that the claim lost an address conflict
	Deleting             bool
	// OwnerClaim is the claim of an address object; zero for a claim. While the claim
	// owns the range of the address object, claim and address object are one owner; the
	// range is free when the claim and the address object are gone.
	OwnerClaim Key
	// MarkedMoved: the claim carries the mark of clusterctl, which deletes a claim here
	// after moving the claim to another cluster. A user can set the mark too: after the
	// deletion, DecideMoved records whether clusterctl moved the claim; until then the
	// range is not free.
	MarkedMoved bool
	// Cluster API Clusters, in the claim's namespace, that the claim names
	Clusters []string
}

// owner returns the claim that owns the ranges of c: c itself, or the claim of an address
// object.
func (c *Claim) owner() Key {
	if c.OwnerClaim != (Key{}) {
		return c.OwnerClaim
	}
	return c.Key
}

// RangeRequest is one range that a claim requests.
type RangeRequest struct {
	// Exact requests exactly this range. If Exact is not valid, the pool's policy chooses
	// Count addresses.
	Exact allocator.Range
	// IgnorePoolBlocks: Exact may be a range that the claim's own pool blocks, as the
	// caller has checked that this claim may have it. A block by another pool still
	// denies the request.
	IgnorePoolBlocks bool
	Count            int64
	// Bits of the addresses to choose, 32 or 128; 0 if the pool has a single family.
	Bits int
}

// Request asks for the ranges of a claim: either every range is granted, or the request
// fails. Ranges that the stored claim owns already are not granted again.
type Request struct {
	Claim Key    // without a name while the API server has yet to generate the name
	UID   string // of a stored claim; "" for a create
	// Version is the resourceVersion of the stored claim that the response overwrites: a
	// response based on a different version cannot be stored.
	Version       uint64
	OwnerClaim    Key    // of an address object
	RequestUID    string // UID of the admission request, equal in each HTTP repetition of a call; the call of another webhook has another UID; "" for a reconciler
	Pool          Key    // zero for a claim that requests exact ranges without naming a pool
	RoutingDomain string // routing domain of a claim without a pool
	// IgnorePoolRules requests exact ranges of the pool's routing domain regardless of
	// what the pool offers, because an address object owns the range that it names.
	// Blocked ranges of the routing domain count, except with IgnorePoolBlocks.
	IgnorePoolRules bool
	Ranges          []RangeRequest // no two requests share an address
}

// Grant is the result of a Request: the journal contains its ranges under a token that no
// other response carries.
type Grant struct {
	Ranges        []allocator.Range // a range for each range request, in the same order; without ranges that the stored claim owns already
	RoutingDomain string
	Token         journal.Token
}
