package inventory

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
)

// Clusters contains the stored Clusters of Cluster API: namespace/name -> Cluster. A nil
// Clusters means that the Clusters are not known: each may exist.
type Clusters map[string]clusterpause.Cluster

// Cluster implements clusterpause.Clusters.
func (c Clusters) Cluster(namespace, name string) (clusterpause.Cluster, bool) {
	if c == nil {
		return clusterpause.Cluster{}, true
	}
	cluster, there := c[namespace+"/"+name]
	return cluster, there
}

// SetClusters sets the stored Clusters of Cluster API, of all namespaces ("") or of one.
// The Clusters of another namespace are not known, and none without SetClusters.
func (i *Inventory) SetClusters(stored Clusters, namespace string) {
	i.clusters, i.clustersIn = stored, namespace
}

// clustersOf returns the Clusters for the objects of a namespace.
func (i *Inventory) clustersOf(namespace string) Clusters {
	if i.clustersIn != "" && i.clustersIn != namespace {
		return nil
	}
	return i.clusters
}

// NamesCluster reports whether a pool names a Cluster, or a claim that may wait for it:
// the note of the pool and the reason of the claim depend on the Clusters.
func (i *Inventory) NamesCluster() bool {
	for _, p := range i.pools {
		if checkPool(p, Clusters{}) != nil && checkPool(p, nil) == nil {
			return true
		}
	}
	for _, c := range i.claims {
		if mayWait(c) && i.checkWait(c, Clusters{}) != nil && i.checkWait(c, nil) == nil {
			return true
		}
	}
	return false
}

// mayWait reports whether a pause keeps a claim from becoming Ready: a claim without a
// range, or an IPClaim or IPAddressClaim with one, whose address object is created later.
// A paused pool does not keep an IPAllocation with a range from becoming Ready.
func mayWait(c *Claim) bool {
	return c.State == ClaimPending || c.State == ClaimNotReady && kinds.ForResource(c.Key.Resource).AddressObjects != ""
}

// WaitOf returns why the manager does not serve a claim now: the claim, its pool or a
// Cluster of both is paused, or the Cluster does not exist; nil without such a reason.
func (i *Inventory) WaitOf(c *Claim) *clusterpause.WaitError {
	var wait *clusterpause.WaitError
	if mayWait(c) && errors.As(i.checkWait(c, i.clustersOf(c.Key.Namespace)), &wait) {
		return wait
	}
	return nil
}

// NoteOfPause returns a note about a pool whose claims wait, whatever room it has; "" for
// another pool. The status of an IPPool has no such note.
func (i *Inventory) NoteOfPause(p *Pool) string {
	var wait *clusterpause.WaitError
	switch {
	case !errors.As(checkPool(p, i.clustersOf(p.Key.Namespace)), &wait):
		return ""
	case clusterpause.IsPaused(p.Object):
		return "paused"
	}
	return wait.Reason
}

// LacksCluster reports whether the Cluster that a claim names is known to be missing.
func (i *Inventory) LacksCluster(c *Claim) bool {
	known := i.clustersOf(c.Key.Namespace)
	_, there := known[c.Tenant]
	return c.Purpose == PurposeMachine && c.Tenant != "" && known != nil && !there
}

// checkWait returns an error while the manager does not reconcile a claim, by the rules
// of the manager.
func (i *Inventory) checkWait(c *Claim, clusters Clusters) error {
	if err := checkObject(kinds.ForResource(c.Key.Resource), c.object, clusters); err != nil {
		return err
	}
	if p := i.pools[c.Pool]; p != nil {
		return checkPool(p, clusters)
	}
	return nil
}

// checkPool returns an error while the manager does not reconcile the claims of a pool.
func checkPool(p *Pool, clusters Clusters) error { return checkObject(p.Kind, p.Object, clusters) }

func checkObject(k *kinds.Kind, o metav1.Object, clusters Clusters) error {
	if k.CheckWait == nil {
		return nil
	}
	return k.CheckWait(o, clusters)
}

// ReasonOf returns why a claim is not Ready: it waits for a pool that does not exist, or
// waits as WaitOf describes, or the reason in its status. An IPClaim that waits has no
// reason in its status. The result is "" for a Ready claim, and if no reason is known.
func (i *Inventory) ReasonOf(c *Claim) string {
	if c.Reason == "" && i.LacksPool(c) {
		return WaitsFor(c.Pool)
	}
	if wait := i.WaitOf(c); wait != nil {
		return wait.Error()
	}
	return c.Reason
}
