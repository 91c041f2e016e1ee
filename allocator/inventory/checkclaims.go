package inventory

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
)

// checkClaim lists the defects of a claim or an address object.
func (i *Inventory) checkClaim(c *Claim, grace time.Duration) (list []Finding) {
	add := func(d Defect, remedy, format string, values ...any) {
		list = append(list, newFinding(d, []Key{c.Key}, remedy, titled(c.Key)+" "+format, values...))
	}
	age := i.now.Sub(c.Created).Round(time.Second)
	if c.OwnerClaim != (Key{}) {
		// A name that no claim can have, such as _reserved, reserves the address.
		canExist := len(validation.IsDNS1123Subdomain(c.OwnerClaim.Name)) == 0
		if canExist && len(c.Ranges) > 0 && i.claims[c.OwnerClaim] == nil && i.isRead(c.OwnerClaim) && age >= grace && c.State != ClaimDeleting {
			add(OrphanAddress, "kubectl delete "+kubectlName(c.Key)+", if nothing uses the address; otherwise create the claim again",
				"owns %s, and its claim %s is not stored", formatRanges(c.Ranges), titled(c.OwnerClaim))
		}
		return list
	}
	o := i.state.OwnershipOf(c.UID)
	unready := i.now.Sub(c.unreadySince).Round(time.Second)
	reason := cmp.Or(c.Reason, "its status has no reason")
	switch {
	case o.Conflict != nil && c.State == ClaimReady:
		add(TwoOwners, "stop one of the two users, then kubectl delete "+kubectlName(c.Key)+", or the other claim", "is Ready, and so is the owner of its address: %s", o.Conflict.SeenFrom(c.Key.Place()))
	case o.Conflict != nil:
		add(LostConflict, "kubectl delete "+kubectlName(c.Key)+", after its user has another address", "names an address that has another owner: %s", o.Conflict.SeenFrom(c.Key.Place()))
	case c.State == ClaimDeleting:
		if d := i.now.Sub(c.deletedAt).Round(time.Second); d >= grace {
			add(StuckDeletion, "kubectl get "+kubectlName(c.Key)+" -o jsonpath='{.metadata.finalizers}', which names what keeps it: for a finalizer of Butler IPAM see the log of the manager",
				"is being deleted for %s", d)
		}
	case o.Deferred != nil:
		add(NotOffered, "change its pool so that it offers the addresses, or kubectl delete "+kubectlName(c.Key), "names addresses that it does not own: %v", o.Deferred)
	case i.lacksPool(c):
		add(PoolMissing, "create "+titled(c.Pool)+", or create the claim again with another pool", waitsForPool, titled(c.Pool))
	case c.State == ClaimPending && unready >= grace:
		add(NoAddress, "release addresses of its pool, or enlarge the pool, unless the reason is another", "has no address for %s: %s", unready, reason)
	case c.State != ClaimReady && c.State != ClaimPending && unready >= grace:
		add(NotReady, "kubectl describe "+kubectlName(c.Key)+", then the log of the manager", "has its addresses and is not Ready for %s: %s", unready, reason)
	case c.addressObject != (Key{}) && i.claims[c.addressObject] == nil && i.isRead(c.addressObject) && age >= grace:
		add(AddressObjectMissing, "see the log of the manager, which creates it again: it also needs the pool", "names %s in its status, which is not stored", titled(c.addressObject))
	}
	if len(c.Ranges) > 0 && c.State != ClaimDeleting && c.finalizer != "" && !slices.Contains(c.finalizers, c.finalizer) && age >= grace {
		add(FinalizerMissing, "see the log of the manager, which adds it again: without it a deletion skips the cooldown", "lacks the finalizer %s", c.finalizer)
	}
	if c.tenantMissing {
		add(TenantMissing, "kubectl delete "+kubectlName(c.Key)+", if the tenant does not come back", "is for TenantCluster %s, which does not exist", c.Tenant)
	}
	return list
}

// Clusters lists the Clusters of Cluster API that claims name, as namespace/name.
func (i *Inventory) Clusters() (names []string) {
	for _, c := range i.claims {
		if c.Purpose == PurposeMachine && c.Tenant != "" {
			names = append(names, c.Tenant)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckClusters lists the claims that name a Cluster which is not among the stored Clusters, given as namespace/name.
func (i *Inventory) CheckClusters(stored map[string]bool, grace time.Duration) (list []Finding) {
	for _, c := range i.claims {
		if c.Purpose == PurposeMachine && c.Tenant != "" && !stored[c.Tenant] && c.State != ClaimDeleting && i.now.Sub(c.Created) >= grace {
			list = append(list, newFinding(TenantMissing, []Key{c.Key}, "create the Cluster, or kubectl delete "+kubectlName(c.Key),
				"%s is for Cluster %s, which does not exist", titled(c.Key), c.Tenant))
		}
	}
	SortFindings(list)
	return list
}

// checkGrants lists the grants of a journal whose objects were never stored, if the journal has not been renewed for the life of a grant: only a leader
// removes grants. While a leader renews the journal it removes these grants itself, and the journal does not show their age.
func (i *Inventory) checkGrants(entries []journal.Entry, unrenewed time.Duration) (list []Finding) {
	if unrenewed < state.DefaultGrantLife {
		return nil
	}
	stored := map[journal.Token]bool{}
	for _, c := range i.claims {
		stored[c.token] = true
	}
	for _, e := range entries {
		if e.IsStandby() || stored[e.Token] || e.UID == "" && e.StoredName != "" { // the last are withheld ranges of a pool
			continue
		}
		list = append(list, newFinding(LeakedGrant, nil, "start the manager: its leader removes the grant; until then its addresses are not free",
			"the journal grants %s to one of the %s of namespace %q for at least %s, and no object has this grant", formatRanges(e.Ranges), e.Resource, e.Namespace, unrenewed.Round(time.Second)))
	}
	return list
}
