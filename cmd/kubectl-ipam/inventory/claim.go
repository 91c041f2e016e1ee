package inventory

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/state"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Purpose is the use of the addresses of a claim.
type Purpose = object.Purpose

// Purposes of claims.
const (
	PurposeNodes        = object.PurposeNodes
	PurposeLoadBalancer = object.PurposeLoadBalancer
	PurposeVIP          = object.PurposeVIP
	PurposeMachine      = object.PurposeMachine
)

// ClaimState summarizes a claim.
type ClaimState string

const (
	ClaimReady    ClaimState = "Ready"
	ClaimNotReady ClaimState = "NotReady" // names ranges, and its status is not Ready
	ClaimPending  ClaimState = "Pending"  // has no range
	ClaimConflict ClaimState = "Conflict" // its status reports a lost address conflict
	ClaimDeleting ClaimState = "Deleting"
)

// Claim describes a stored claim or address object.
type Claim struct {
	Key    Key
	UID    string
	Pool   Key    // zero for a claim without a pool
	Domain string // routing domain of the ranges, if the claim records it (DomainGranted); otherwise of its label
	// DomainGranted: the claim records the routing domain in which its ranges were
	// granted.
	DomainGranted bool

	Ranges  []allocator.Range
	State   ClaimState
	Reason  string // why the claim is not Ready; "" for a Ready claim
	Purpose Purpose
	Tenant  string // namespace/name of the TenantCluster, of the Cluster, or of the Service of a ProxyVIP; "" without a tenant
	Team    string
	Origin  string // value of butlerv1.AnnotationOrigin
	Role    string // value of butlerv1.LabelAllocationRole
	Created time.Time
	Since   time.Time // time of the allocation, if the status records the time; otherwise Created
	// IdleSince is the time in annotation butlerv1.AnnotationIdleSince; zero if the
	// annotation is missing or cannot be parsed.
	IdleSince time.Time
	// Description is the value of annotation AnnotationDescription. Only a ProxyVIP has
	// Mode and Ports.
	Description string
	Mode        novaedgev1.VIPMode
	Ports       []int32
	// OwnerClaim is the claim of an address object; zero for a claim.
	OwnerClaim Key

	Token         journal.Token // of the grant; zero without a grant
	Finalizers    []string
	Finalizer     string    // finalizer of the manager for claims of this kind; "" for kinds without a finalizer
	DeletedAt     time.Time // zero if the claim is not being deleted
	UnreadySince  time.Time // since when the claim is not Ready, if the status records the time; otherwise Created
	TenantMissing bool      // the TenantCluster of an IPAllocation does not exist
	AddressObject Key       // address object in the status of the claim; zero if the status names no address object

	object metav1.Object
}

// AnnotationDescription is the Kubernetes annotation for a description of an object.
const AnnotationDescription = "kubernetes.io/description"

func (i *Inventory) addClaim(c state.Claim, d object.Description, o metav1.Object) {
	i.state.ObserveClaim(i.now, i.maskClaim(c))
	if !i.isHidden(c.Key) {
		i.claims[c.Key] = newClaim(c, d, o)
	}
}

func newClaim(c state.Claim, d object.Description, o metav1.Object) *Claim {
	described := &Claim{
		Key: c.Key, UID: c.UID, Pool: c.Pool, Domain: c.RoutingDomain, DomainGranted: c.RoutingDomainGranted, Ranges: c.Ranges, Purpose: d.Purpose, Tenant: d.Tenant, Reason: d.Reason, Created: c.Created,
		Since: c.Created, Team: o.GetLabels()[butlerv1.LabelTeam], Origin: o.GetAnnotations()[butlerv1.AnnotationOrigin], OwnerClaim: c.OwnerClaim,
		Description: o.GetAnnotations()[AnnotationDescription], Mode: novaedgev1.VIPMode(d.Mode), Ports: d.Ports, object: o,
	}
	described.Role = o.GetLabels()[butlerv1.LabelAllocationRole]
	described.IdleSince, _ = time.Parse(time.RFC3339, o.GetAnnotations()[butlerv1.AnnotationIdleSince]) // zero if the annotation cannot be parsed
	described.Token, described.TenantMissing, described.UnreadySince = c.Token, d.TenantMissing, c.Created
	described.Finalizer, described.Finalizers = d.Finalizer, o.GetFinalizers()
	if d.UnreadySince.After(c.Created) {
		described.UnreadySince = d.UnreadySince
	}
	if d.AddressObject != "" {
		described.AddressObject = Key{Resource: kinds.ForResource(c.Key.Resource).AddressObjects, Namespace: c.Key.Namespace, Name: d.AddressObject}
	}
	if deleted := o.GetDeletionTimestamp(); deleted != nil {
		described.DeletedAt = deleted.Time
	}
	if !d.AllocatedAt.IsZero() {
		described.Since = d.AllocatedAt
	}
	switch {
	case c.Deleting:
		described.State = ClaimDeleting
	case c.Flagged:
		described.State = ClaimConflict
	case len(c.Ranges) == 0:
		described.State = ClaimPending
	case c.Ready:
		described.State, described.Reason = ClaimReady, ""
	default:
		described.State = ClaimNotReady
	}
	return described
}

// Claim returns a claim or address object; nil if the Inventory does not contain the
// object.
func (i *Inventory) Claim(k Key) *Claim { return i.claims[k] }

// WaitsFor returns the reason of a claim whose pool does not exist.
func WaitsFor(pool Key) string { return "waits for " + TitleOf(pool) + ", which does not exist" }

// LacksPool reports whether a claim has no range and names a pool that does not exist.
// The result is false for an unread pool, which may exist (see IsRead).
func (i *Inventory) LacksPool(c *Claim) bool {
	return c.State == ClaimPending && c.Pool != (Key{}) && i.pools[c.Pool] == nil && i.IsRead(c.Pool)
}

// FindNotOffered describes the addresses that a claim owns and that its pool does not
// offer, see state.State.FindNotOffered. The result is nil for an unread pool, which may
// exist (see IsRead).
func (i *Inventory) FindNotOffered(c *Claim) *state.NotOfferedError {
	e := i.state.FindNotOffered(c.UID)
	if e == nil || e.PoolMissing() && !i.IsRead(c.Pool) {
		return nil
	}
	e.Pool = c.Pool // not a pseudonym: the claim names its pool
	return e
}

// Stored lists the claims and the address objects, in no particular order.
func (i *Inventory) Stored() iter.Seq2[Key, *Claim] { return maps.All(i.claims) }

// OwnershipOf returns the ownership of the claim or address object with this UID.
func (i *Inventory) OwnershipOf(uid string) state.Ownership { return i.state.OwnershipOf(uid) }

// Claims lists the claims, without address objects, by pool and first address. Claims
// without a range follow the other claims of their pool. Claims sets the reason of a
// claim that is not Ready, see ReasonOf.
func (i *Inventory) Claims() []*Claim {
	list := slices.DeleteFunc(slices.Collect(maps.Values(i.claims)), func(c *Claim) bool { return c.OwnerClaim != (Key{}) })
	for n, c := range list {
		if reason := i.ReasonOf(c); reason != c.Reason {
			explained := *c
			explained.Reason = reason
			list[n] = &explained
		}
	}
	slices.SortFunc(list, func(x, y *Claim) int {
		return cmp.Or(CompareKeys(x.Pool, y.Pool), -cmp.Compare(min(len(x.Ranges), 1), min(len(y.Ranges), 1)), compareFirst(x, y), CompareKeys(x.Key, y.Key))
	})
	return list
}

func compareFirst(x, y *Claim) int {
	if len(x.Ranges) == 0 || len(y.Ranges) == 0 {
		return 0
	}
	return x.Ranges[0].First.Compare(y.Ranges[0].First)
}
