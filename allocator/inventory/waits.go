package inventory

import (
	"errors"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Clusters contains the stored Clusters of Cluster API: namespace/name -> Cluster. A nil Clusters means that the Clusters are not known: each may exist.
type Clusters map[string]metal3.Cluster

// Cluster implements metal3.Clusters.
func (c Clusters) Cluster(namespace, name string) (metal3.Cluster, bool) {
	if c == nil {
		return metal3.Cluster{}, true
	}
	cluster, there := c[namespace+"/"+name]
	return cluster, there
}

// SetClusters sets the stored Clusters of Cluster API. Without SetClusters, the Clusters are not known.
func (i *Inventory) SetClusters(stored Clusters) { i.clusters = stored }

// NamesCluster reports whether a claim without a range, or the pool of such a claim, names a Cluster: the reason of the claim depends on the Clusters.
func (i *Inventory) NamesCluster() bool {
	for _, c := range i.claims {
		if c.State == ClaimPending && i.checkWait(c, Clusters{}) != nil && i.checkWait(c, nil) == nil {
			return true
		}
	}
	return false
}

// WaitOf returns why the manager gives a claim without a range no address now: the claim, its pool or a Cluster of both is paused, or the Cluster does not
// exist; nil without such a reason.
func (i *Inventory) WaitOf(c *Claim) *metal3.WaitError {
	var wait *metal3.WaitError
	if c.State == ClaimPending && errors.As(i.checkWait(c, i.clusters), &wait) {
		return wait
	}
	return nil
}

// LacksCluster reports whether the Cluster that a claim names is known to be missing.
func (i *Inventory) LacksCluster(c *Claim) bool {
	_, there := i.clusters[c.Tenant]
	return c.Purpose == PurposeMachine && c.Tenant != "" && i.clusters != nil && !there
}

// checkWait returns an error while the manager does not reconcile a claim, by the rules of the manager.
func (i *Inventory) checkWait(c *Claim, clusters Clusters) error {
	var err error
	switch o := c.object.(type) {
	case *metal3v1.IPClaim:
		err = metal3.CheckWait(o, KindOf(c.Key), "", clusters)
	case *ipamv1.IPAddressClaim:
		err = clusterapi.CheckWait(o, clusters)
	}
	p := i.pools[c.Pool]
	if err != nil || p == nil {
		return err
	}
	switch o := p.Object.(type) {
	case *metal3v1.IPPool:
		return metal3.CheckPoolWait(o, clusters)
	case *butlerv1.NetworkPool:
		return clusterapi.CheckNetworkPoolWait(o)
	}
	return nil
}

// ReasonOf returns why a claim is not Ready: it waits for a pool that does not exist, or waits as WaitOf describes, or the reason in its status. An IPClaim that
// waits has no reason in its status. The result is "" for a Ready claim, and if no reason is known.
func (i *Inventory) ReasonOf(c *Claim) string {
	if c.Reason == "" && i.LacksPool(c) {
		return WaitsFor(c.Pool)
	}
	if wait := i.WaitOf(c); wait != nil {
		return wait.Error()
	}
	return c.Reason
}
