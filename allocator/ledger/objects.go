package ledger

import (
	"cmp"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// Key names one object of a served API.
type Key struct {
	Kind      string // plural resource and group, as in "ipallocations.butler.butlerlabs.dev"
	Namespace string // empty for cluster-scoped kinds
	Name      string // empty where generateName has not been expanded yet
}

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Places of readers that are no namespace: none has such a name.
const (
	everywhere = "*" // readers who may know every owner: those of the log
	anywhere   = "-" // the author of a cluster-scoped object, who may be anybody: a dry run is enough to be answered
)

// Place is where the author of an object reads what is told of other owners: its namespace, of a ProxyVIP for a Service that of the Service.
func (k Key) Place() string { return cmp.Or(k.Namespace, k.serviceNamespace(), anywhere) }

// SeenFrom names an owner as far as a reader in a place may know it: "by ipallocations/web". The place "" is that of whoever reads cluster-scoped objects,
// and may know every cluster-scoped owner. An owner in another namespace is not named, and neither is the ProxyVIP of a Service in another one, whose name has
// the Service's.
func (k Key) SeenFrom(place string) string {
	switch {
	case k.hiddenFrom(place) && k.Namespace == "":
		return "for a Service of another namespace"
	case k.hiddenFrom(place) && (place == "" || place == anywhere):
		return "by a namespaced object"
	case k.hiddenFrom(place):
		return "in another namespace"
	case k.Name == "":
		return "by a create that is under way"
	}
	resource, _, _ := strings.Cut(k.Kind, ".")
	if k.Namespace != "" && k.Namespace != place {
		return "by " + resource + "/" + k.Name + " in namespace " + k.Namespace
	}
	return "by " + resource + "/" + k.Name
}

// hiddenFrom reports whether a reader in a place may not know the name.
func (k Key) hiddenFrom(place string) bool {
	of := k.Namespace
	if of == "" && place != "" {
		of = k.serviceNamespace()
	}
	return of != "" && place != everywhere && of != place
}

// serviceNamespace is the namespace of the Service that a ProxyVIP is for, whose name is svc-NAMESPACE.SERVICE; "" for other objects.
func (k Key) serviceNamespace() string {
	name, isOf := strings.CutPrefix(k.Name, "svc-")
	if namespace, _, found := strings.Cut(name, "."); isOf && found && strings.HasPrefix(k.Kind, "proxyvips.") {
		return namespace
	}
	return ""
}

// Pool is what the ledger needs to know of an object that offers ranges.
type Pool struct {
	Key             Key
	ResourceVersion uint64 // versions older than the one known are ignored
	Space           string // routing domain; "" is the default space
	Window          []allocator.Range
	Fault           string                             // a rule that the pool breaks, for which Window is empty; "" for none
	Readable        []allocator.Range                  // what a pool with a fault may have given of, as far as it can be read
	Ordered         bool                               // each range of Window is used up before the next is looked at; else they are one
	Blocked         []allocator.Range                  // allocated to nobody but those whom a Want keeps them for, in the whole space
	Keeps           func(claim string) allocator.Range // what of Blocked is for the claim of a name; nil where nothing is for any
	// WhatIsBlocked is what a range of Blocked is to the pool, and names the field that says so: "is the gateway (spec.gateway)". WhyOutside is why
	// the pool leaves out a range that is not in Window, "" where it never had it. Both may be nil.
	WhatIsBlocked func(allocator.Range) string
	WhyOutside    func(allocator.Range) string
	BlocksHeld    bool             // what somebody holds may become blocked: it stays theirs
	Policy        allocator.Policy // BestFit where nil
	Manual        bool             // gives only ranges that are asked for by name
	ReuseDelay    time.Duration    // how long a released range rests
	UID           string
	Cooling       []Cooling // recorded releases that may still rest
	// Listed is the revision of the pool's list of ranges that went to other clusters: the version of the pool on which the list is based. Ranges that
	// the list lacks and that a list of this revision or an earlier one had shown, a person has taken out. 0 where the absence of a range means
	// nothing: there is no list, it cannot be read, or it is not one of this pool's.
	Listed   uint64
	Flagged  bool // stored as one whose range another has (AddressConflict)
	Deleting bool
	Paused   bool   // it gives only ranges that are asked for by name
	Cluster  string // of Cluster API, in its namespace, that it belongs to; "" for none
}

// Cooling is a released range that may not be handed out before Until, or, where that is zero, to nobody but its claim: it went to another
// cluster, and lives there.
type Cooling struct {
	Range allocator.Range
	Since time.Time // its release, zero where that is not known: a pool's shorter ReuseDelay ends its rest earlier
	Until time.Time
	Claim Key    // that comes back with it, perhaps; zero where Until is set
	Left  string // UID of the object that went with it, "" where that is not known
}

// Claim is what the ledger needs to know of a stored object that asks for addresses.
type Claim struct {
	Key             Key // complete: the object is stored
	UID             string
	ResourceVersion uint64
	Created         time.Time
	Pool            Key               // zero for one of no pool
	Space           string            // as the claim's label says, which counts only where the claim has no pool that is known
	Ranges          []allocator.Range // empty while unanswered
	Token           journal.Token     // zero where nobody granted the ranges
	Ready           bool              // stored as Ready (Bound): its owner may be using the addresses
	Vouched         bool              // stored as one that somebody, if not the ledger, gave its ranges
	Flagged         bool              // stored as one whose range another has (AddressConflict)
	Deleting        bool
	// For is the claim that this object holds its range for, zero for one that holds it for itself. While that claim holds the same range, the two
	// are one holder; the range is free when both are gone.
	For Key
	// Away says that the claim is marked as one that clusterctl deletes here because it lives on in another cluster. Whether clusterctl can have
	// marked it is decided when it is gone (DecideMoved); until then its range is not free.
	Away bool
	// Clusters of Cluster API, in its namespace, that it says it belongs to.
	Clusters []string
}

// holder is the claim whose the ranges of c are.
func (c *Claim) holder() Key {
	if c.For != (Key{}) {
		return c.For
	}
	return c.Key
}
