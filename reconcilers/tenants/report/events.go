package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Reasons of events on a TenantCluster.
const (
	eventAllocated    = "AddressesAllocated"
	eventAdopted      = "LoadBalancerIPsAdopted"
	eventGrown        = "LoadBalancerIPsAdded"
	eventShrunk       = "LoadBalancerIPsReleased"
	eventSynced       = "MetalLBSynced"
	eventDrift        = "MetalLBDriftCorrected"
	eventReachable    = "TenantReachable"
	eventReleaseWaits = "AddressReleaseWaits"
	eventReleased     = "AddressesReleased"
)

// Reasons of events on other objects.
const (
	eventOrphaned       = "TenantClusterMissing" // IPAllocation
	eventOrphanGC       = "OrphanedAllocationGC" // IPAllocation and NetworkPool
	eventAvoided        = "AddressAvoided"       // NetworkPool
	eventUnlisted       = "StatusListFull"       // NetworkPool
	eventPoolsExhausted = "PoolsExhausted"       // ProviderConfig
)

// Events records events.
type Events struct{ Recorder record.EventRecorder }

// RecordInitial records that a tenant got an initial block.
func (e Events) RecordInitial(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.Recorder.Eventf(c, corev1.EventTypeNormal, eventAllocated, "%s for %s from pool %s: IPAllocation %s", rangeText(a), a.Spec.Type, a.Spec.PoolRef.Name, a.Name)
}

// RecordNetworkNotReady records why condition NetworkReady is false. While addresses are being allocated, and when the condition is true, no event is recorded.
func (e Events) RecordNetworkNotReady(c *v1alpha1.TenantCluster, ready metav1.Condition) {
	if ready.Status == metav1.ConditionFalse && ready.Reason != v1alpha1.ReasonReconciling {
		e.Recorder.Event(c, corev1.EventTypeWarning, ready.Reason, ready.Message)
	}
}

// RecordAdoption records that addresses that a tenant used before were allocated to the tenant.
func (e Events) RecordAdoption(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.Recorder.Eventf(c, corev1.EventTypeNormal, eventAdopted, "%s, which the tenant uses already, from pool %s: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
}

// RecordNotAdopted records why addresses that a tenant uses are not allocated to it. An allocation that is not ready yet is no obstacle.
func (e Events) RecordNotAdopted(c *v1alpha1.TenantCluster, condition metav1.Condition) {
	if condition.Status == metav1.ConditionFalse && condition.Reason != v1alpha1.ReasonReconciling {
		e.Recorder.Event(c, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
}

// RecordGrowth records that a tenant got a growth block.
func (e Events) RecordGrowth(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.Recorder.Eventf(c, corev1.EventTypeNormal, eventGrown, "%s from pool %s for waiting Services: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
}

// RecordShrink records that an idle growth block was released.
func (e Events) RecordShrink(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.Recorder.Eventf(c, corev1.EventTypeNormal, eventShrunk, "%s released to pool %s, unused: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
}

// RecordGrowthPrevented records why condition LoadBalancerIPsAvailable is not true.
func (e Events) RecordGrowthPrevented(c *v1alpha1.TenantCluster, condition metav1.Condition) {
	if condition.Status != metav1.ConditionTrue {
		e.Recorder.Event(c, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
}

// RecordPoolWritten records the new content of a tenant's IPAddressPool.
func (e Events) RecordPoolWritten(c *v1alpha1.TenantCluster, entries []string) {
	message := "the tenant's IPAddressPool was deleted: there are no addresses to offer"
	if len(entries) > 0 {
		message = "the tenant's IPAddressPool offers " + strings.Join(entries, ", ")
	}
	e.Recorder.Event(c, corev1.EventTypeNormal, eventSynced, message)
}

// RecordDrift records a change of IPAM's MetalLB objects by another writer.
func (e Events) RecordDrift(c *v1alpha1.TenantCluster, change string) {
	e.Recorder.Event(c, corev1.EventTypeWarning, eventDrift, change+"; the change is reverted: use an IPAddressPool of another name for other addresses")
}

// RecordReachable records the end of an outage that a condition reported.
func (e Events) RecordReachable(c *v1alpha1.TenantCluster) {
	e.Recorder.Event(c, corev1.EventTypeNormal, eventReachable, "the tenant's API server answers again")
}

// RecordReleaseWaits records why the addresses of a deleted tenant are not released yet.
func (e Events) RecordReleaseWaits(c *v1alpha1.TenantCluster, reason string) {
	e.Recorder.Event(c, corev1.EventTypeNormal, eventReleaseWaits, "the addresses are not released yet: "+reason)
}

// RecordReleased records that an allocation of a deleted tenant was deleted.
func (e Events) RecordReleased(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.Recorder.Eventf(c, corev1.EventTypeNormal, eventReleased, "%s released to pool %s: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
}

// RecordOrphaned records that the TenantCluster of an allocation is gone.
func (e Events) RecordOrphaned(a *v1alpha1.IPAllocation, message string) {
	e.Recorder.Event(a, corev1.EventTypeWarning, eventOrphaned, message)
}

// RecordOrphanDeleted records that an orphaned allocation was deleted. pool may be nil.
func (e Events) RecordOrphanDeleted(a *v1alpha1.IPAllocation, pool *v1alpha1.NetworkPool) {
	message := fmt.Sprintf("IPAllocation %s (%s) is released: its TenantCluster %s/%s is gone", a.Name, rangeText(a), a.Spec.TenantClusterRef.Namespace, a.Spec.TenantClusterRef.Name)
	e.Recorder.Event(a, corev1.EventTypeNormal, eventOrphanGC, message)
	if pool != nil {
		e.Recorder.Event(pool, corev1.EventTypeNormal, eventOrphanGC, message)
	}
}

// RecordPoolsExhausted records that the pools of a ProviderConfig have no free address.
func (e Events) RecordPoolsExhausted(p *v1alpha1.ProviderConfig, message string) {
	e.Recorder.Event(p, corev1.EventTypeWarning, eventPoolsExhausted, message)
}

// RecordAvoided records an address in a range for tenants that a Node, Machine or Service uses without an allocation.
func (e Events) RecordAvoided(p *v1alpha1.NetworkPool, used v1alpha1.InfrastructureAllocation) {
	user, remedy := "Node or Machine", "remove it from the machine"
	if used.ServiceRef != nil {
		user, remedy = "Service", "give the Service another address"
	}
	e.Recorder.Eventf(p, corev1.EventTypeWarning, eventAvoided,
		"%s is in a range for tenants and in use by a %s, but belongs to no IPAllocation: it is not allocated; reserve it, or %s", used.IP, user, remedy)
}

// RecordInfrastructureUnlisted records that the status of a pool has no room for all addresses that the platform uses.
func (e Events) RecordInfrastructureUnlisted(p *v1alpha1.NetworkPool, unlisted int) {
	e.Recorder.Eventf(p, corev1.EventTypeWarning, eventUnlisted,
		"status.infrastructureAllocations has no room for %d more addresses, which are not allocated either; infrastructureConsumedIPs counts all", unlisted)
}

// rangeText returns the range of an allocation, for messages.
func rangeText(a *v1alpha1.IPAllocation) string {
	switch r := a.Spec.PinnedRange; {
	case r == nil:
		return "addresses"
	case r.StartAddress == r.EndAddress:
		return r.StartAddress
	default:
		return r.StartAddress + "-" + r.EndAddress
	}
}
