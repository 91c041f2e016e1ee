package inventory

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/state"
)

// Key identifies an object.
type Key = state.Key

// Resources lists the resources of the objects in an Inventory, pools first.
var Resources = kinds.Resources()

// Inventory contains the stored pools and claims, and the open grants of the journal.
type Inventory struct {
	now         time.Time
	state       *state.State
	knowsGrants bool            // the journal was read
	grants      []journal.Entry // open grants
	pools       map[Key]*Pool
	claims      map[Key]*Claim
	unread      map[string]string // resource -> the only namespace that was read; "" if no namespace was read
	anonymous   *anonymous        // hidden objects; nil without restriction
	clusters    Clusters
	clustersIn  string // namespace of the Clusters; "" for all namespaces
}

// New returns an Inventory without objects. grants are the entries of the journal, read
// before the objects; nil if the journal could not be read.
func New(now time.Time, grants []journal.Entry) *Inventory {
	i := &Inventory{
		now: now, knowsGrants: grants != nil, pools: map[Key]*Pool{}, claims: map[Key]*Claim{}, unread: map[string]string{},
		state: state.New(Resources, state.Limits{GrantLife: state.DefaultGrantLife, JournalBytes: math.MaxInt}, newTokens()),
	}
	open := slices.DeleteFunc(slices.Clone(grants), func(e journal.Entry) bool { return e.IsFree() })
	i.grants = open
	i.state.TakeOver(journal.Revision{Snapshot: journal.Snapshot{Entries: open}})
	i.state.StartGranting(now)
	return i
}

// newTokens returns a source of distinct tokens for the grants of PlanUpdate. PlanUpdate
// withdraws each grant: no token is stored.
func newTokens() func() journal.Token {
	n := uint64(0)
	return func() (t journal.Token) {
		n++
		binary.BigEndian.PutUint64(t[:], n)
		return t
	}
}

// Now returns the time of the Inventory: cooldowns that ended earlier are over.
func (i *Inventory) Now() time.Time { return i.now }

// Add adds a stored object. Adding pools before claims saves work. Add ignores:
//
//   - an object of another type
//   - an IPAddressClaim whose pool belongs to another provider
func (i *Inventory) Add(o metav1.Object) {
	k := kinds.Of(o)
	switch {
	case k == nil:
	case k.IsPool():
		p, faults := k.ConvertPool(o)
		i.addPool(p, faults.ToAggregate(), o)
	default:
		if c, served := k.ConvertClaim(o); served {
			i.addClaim(c, k.Describe(o), o)
		}
	}
}

// LeaveOut declares that the objects of a resource were read in only one namespace, or in
// no namespace (""). An unread object may be stored although the Inventory does not
// contain the object.
func (i *Inventory) LeaveOut(resource, namespace string) { i.unread[resource] = namespace }

// LeftOut returns the declarations of LeaveOut: resource -> namespace that was read; ""
// if no namespace was read.
func (i *Inventory) LeftOut() map[string]string { return maps.Clone(i.unread) }

// IsRead reports whether the namespace of an object was read for its resource. If so, an
// object that is not in the Inventory is not stored.
func (i *Inventory) IsRead(k Key) bool {
	namespace, partly := i.unread[k.Resource]
	return !partly || namespace != "" && namespace == k.Namespace
}

// Segments lists the addresses of ranges in a routing domain, see state.State.Segments.
func (i *Inventory) Segments(domain string, ranges []allocator.Range) []state.Segment {
	return i.state.Segments(domain, ranges)
}

// IsGrantedTo reports whether an open grant gives these ranges to the create of a claim.
// A repeated create of the claim gets the same ranges.
func (i *Inventory) IsGrantedTo(k Key, domain string, ranges []allocator.Range) bool {
	return slices.ContainsFunc(i.grants, func(e journal.Entry) bool {
		return e.Resource == k.Resource && e.Namespace == k.Namespace && e.NameHash == journal.HashName(k.Name) && e.RoutingDomain == domain && slices.Equal(e.Ranges, ranges)
	})
}
