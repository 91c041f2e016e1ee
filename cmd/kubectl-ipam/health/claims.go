package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// maxNamesakes bounds the pools that a finding names.
const maxNamesakes = 3

// checkClaim lists the defects of a claim or an address object.
func checkClaim(i *inventory.Inventory, c *inventory.Claim, grace time.Duration) (list []Finding) {
	add := func(d Defect, remedy, format string, values ...any) {
		list = append(list, newFinding(d, []inventory.Key{c.Key}, remedy, inventory.TitleOf(c.Key)+" "+format, values...))
	}
	age := i.Now().Sub(c.Created).Round(time.Second)
	if c.OwnerClaim != (inventory.Key{}) {
		// A claim name that Kubernetes does not permit, such as _reserved, reserves the
		// address without a claim.
		canExist := len(validation.IsDNS1123Subdomain(c.OwnerClaim.Name)) == 0
		if canExist && len(c.Ranges) > 0 && i.Claim(c.OwnerClaim) == nil && i.IsRead(c.OwnerClaim) && age >= grace && c.State != inventory.ClaimDeleting {
			add(OrphanAddress, "kubectl delete "+kubectlName(c.Key)+", if nothing uses the address; otherwise create the claim again",
				"owns %s, and its claim %s is not stored", formatRanges(c.Ranges), inventory.TitleOf(c.OwnerClaim))
		}
		return list
	}
	o, lost := i.OwnershipOf(c.UID), i.FindNotOffered(c)
	unready := i.Now().Sub(c.UnreadySince).Round(time.Second)
	reason, wait := cmp.Or(i.ReasonOf(c), "its status has no reason"), i.WaitOf(c)
	switch {
	case o.Conflict != nil && c.State == inventory.ClaimReady:
		add(TwoOwners, "stop one of the two users, then kubectl delete "+kubectlName(c.Key)+", or the other claim", "is Ready, and so is the owner of its address: %s", o.Conflict.SeenFrom(c.Key.Place()))
	case o.Conflict != nil:
		add(LostConflict, "kubectl delete "+kubectlName(c.Key)+", after its user has another address", "names an address that has another owner: %s", o.Conflict.SeenFrom(c.Key.Place()))
	case c.State == inventory.ClaimDeleting:
		if d := i.Now().Sub(c.DeletedAt).Round(time.Second); d >= grace {
			add(StuckDeletion, "kubectl get "+kubectlName(c.Key)+" -o jsonpath='{.metadata.finalizers}', which names what keeps it: for a finalizer of Butler IPAM see the log of the manager",
				"is being deleted for %s", d)
		}
	case o.Deferred != nil:
		add(NotOffered, "change its pool so that it offers the addresses, or kubectl delete "+kubectlName(c.Key), "names addresses that it does not own: %v", o.Deferred)
	case i.LacksPool(c):
		add(PoolMissing, "create "+inventory.TitleOf(c.Pool)+", or create the claim again with another pool", "%s%s", inventory.WaitsFor(c.Pool), namesakesOf(i, c.Pool))
	case lost != nil && lost.PoolMissing():
		add(PoolMissing, "create "+inventory.TitleOf(c.Pool)+" again so that it offers the addresses, or kubectl delete "+kubectlName(c.Key)+", when nothing uses them",
			"owns %s, and its pool, %s, does not exist%s", formatRanges(c.Ranges), inventory.TitleOf(c.Pool), namesakesOf(i, c.Pool))
	case lost != nil:
		add(NotOffered, "change its pool so that it offers the addresses again, or kubectl delete "+kubectlName(c.Key)+", when nothing uses them", "owns %s, and %v", formatRanges(c.Ranges), lost)
	case wait != nil && wait.Missing && i.LacksCluster(c): // see CheckClusters
	case wait != nil && unready >= grace:
		remedy := "end the pause, unless it is intended"
		if wait.Missing {
			remedy = "create the Cluster, or correct its name"
		}
		if c.State == inventory.ClaimNotReady {
			add(NotReady, remedy, "has its addresses and is not Ready for %s: %s", unready, reason)
		} else {
			add(NoAddress, remedy, "has no address for %s: %s", unready, reason)
		}
	case c.State == inventory.ClaimPending && unready >= grace:
		add(NoAddress, "release addresses of its pool, or enlarge the pool, unless the reason is another", "has no address for %s: %s", unready, reason)
	case c.State != inventory.ClaimReady && c.State != inventory.ClaimPending && unready >= grace:
		add(NotReady, "kubectl describe "+kubectlName(c.Key)+", then the log of the manager", "has its addresses and is not Ready for %s: %s", unready, reason)
	case c.AddressObject != (inventory.Key{}) && i.Claim(c.AddressObject) == nil && i.IsRead(c.AddressObject) && age >= grace:
		add(AddressObjectMissing, "see the log of the manager, which creates it again: it also needs the pool", "names %s in its status, which is not stored", inventory.TitleOf(c.AddressObject))
	}
	if len(c.Ranges) > 0 && c.State != inventory.ClaimDeleting && c.Finalizer != "" && !slices.Contains(c.Finalizers, c.Finalizer) && age >= grace {
		add(FinalizerMissing, "see the log of the manager, which adds it again: without it a deletion skips the cooldown", "lacks the finalizer %s", c.Finalizer)
	}
	if c.TenantMissing {
		add(TenantMissing, "kubectl delete "+kubectlName(c.Key)+", if the tenant does not come back", "is for TenantCluster %s, which does not exist", c.Tenant)
	}
	return list
}

// namesakesOf returns a text about the pools in other namespaces with the name of a
// missing pool; "" without such a pool.
func namesakesOf(i *inventory.Inventory, missing inventory.Key) string {
	var names []string
	for _, p := range i.Pools() {
		if p.Key.Resource == missing.Resource && p.Key.Name == missing.Name {
			names = append(names, inventory.NameOf(p.Key))
		}
	}
	if len(names) == 0 {
		return ""
	}
	more := ""
	if len(names) > maxNamesakes {
		names, more = names[:maxNamesakes], fmt.Sprintf(" and %d more", len(names)-maxNamesakes)
	}
	return fmt.Sprintf(" (%s%s %s: a claim uses a pool of its own namespace)", strings.Join(names, ", "), more, allocator.Agree(len(names), "exists", "exist"))
}

// Clusters lists the Clusters of Cluster API named by claims, as namespace/name.
func Clusters(i *inventory.Inventory) (names []string) {
	for _, c := range i.Stored() {
		if c.Purpose == inventory.PurposeMachine && c.Tenant != "" {
			names = append(names, c.Tenant)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckClusters lists the claims that name a missing Cluster.
func CheckClusters(i *inventory.Inventory, stored inventory.Clusters, grace time.Duration) (list []Finding) {
	for _, c := range i.Stored() {
		if _, there := stored[c.Tenant]; c.Purpose == inventory.PurposeMachine && c.Tenant != "" && !there && c.State != inventory.ClaimDeleting && i.Now().Sub(c.Created) >= grace {
			list = append(list, newFinding(TenantMissing, []inventory.Key{c.Key}, "create the Cluster, or kubectl delete "+kubectlName(c.Key),
				"%s is for Cluster %s, which does not exist", inventory.TitleOf(c.Key), c.Tenant))
		}
	}
	SortFindings(list)
	return list
}

// checkGrants lists the grants of a journal without a stored object, if the journal has
// not been renewed for the life of a grant. Reason for the precondition: a leader that
// renews the journal removes these grants, and the journal does not show their age.
// Without a leader, the grants stay.
func checkGrants(i *inventory.Inventory, entries []journal.Entry, unrenewed time.Duration) (list []Finding) {
	if unrenewed < state.DefaultGrantLife {
		return nil
	}
	stored := map[journal.Token]bool{}
	for _, c := range i.Stored() {
		stored[c.Token] = true
	}
	for _, e := range entries {
		if e.IsStandby() || stored[e.Token] || e.UID == "" && e.StoredName != "" { // standby grant, stored object, or ranges withheld by the update of a pool
			continue
		}
		if !i.IsRead(inventory.Key{Resource: e.Resource, Namespace: e.Namespace}) {
			continue
		}
		list = append(list, newFinding(LeakedGrant, nil, "start the manager: its leader removes the grant; until then its addresses are not free",
			"the journal grants %s to one of the %s of namespace %q for at least %s, and no object has this grant", formatRanges(e.Ranges), e.Resource, e.Namespace, unrenewed.Round(time.Second)))
	}
	return list
}
