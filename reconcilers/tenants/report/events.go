package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
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

// Events records events. Each change of the addresses that a tenant has or offers, and
// each change that was not possible, is also a line in Log: the API server deletes an
// event after an hour. README.md lists the lines.
type Events struct {
	Recorder record.EventRecorder
	Log      logr.Logger
}

// logBlock logs a change of a block of a tenant.
func (e Events) logBlock(change string, a *v1alpha1.IPAllocation, reason string) {
	ref := a.Spec.TenantClusterRef
	e.Log.Info(change, "pool", a.Spec.PoolRef.Name, "tenant", ref.Namespace+"/"+ref.Name, "range", rangeText(a), "type", a.Spec.Type, "allocation", a.Name, "reason", reason)
}

// logMetalLB logs a change of MetalLB's objects in a tenant, after which the tenant's
// IPAddressPool offers some ranges. The reason may contain text of the tenant.
func (e Events) logMetalLB(change string, c *v1alpha1.TenantCluster, ranges, reason string) {
	e.Log.Info(change, "pool", plan.MetalLBPool, "tenant", c.Namespace+"/"+c.Name, "range", ranges, "reason", ShortenText(reason))
}

// RecordInitial records that a tenant got an initial block.
func (e Events) RecordInitial(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.Recorder.Eventf(c, corev1.EventTypeNormal, eventAllocated, "%s for %s from pool %s: IPAllocation %s", rangeText(a), a.Spec.Type, a.Spec.PoolRef.Name, a.Name)
	e.logBlock("Initial allocation", a, "the tenant is new, or its initial addresses were missing")
}

// RecordNetworkNotReady records why condition NetworkReady is false. While addresses are
// being allocated, and when the condition is true, no event is recorded.
func (e Events) RecordNetworkNotReady(c *v1alpha1.TenantCluster, ready metav1.Condition) {
	if ready.Status == metav1.ConditionFalse && ready.Reason != v1alpha1.ReasonReconciling {
		e.Recorder.Event(c, corev1.EventTypeWarning, ready.Reason, ready.Message)
	}
}

// RecordAdoption records that addresses that a tenant used before were allocated to the
// tenant.
func (e Events) RecordAdoption(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.Recorder.Eventf(c, corev1.EventTypeNormal, eventAdopted, "%s, which the tenant uses already, from pool %s: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
	e.logBlock("Adoption", a, "the tenant uses the addresses already")
}

// RecordNotAdopted records why addresses that a tenant uses are not allocated to it. An
// allocation that is not ready yet is no obstacle.
func (e Events) RecordNotAdopted(c *v1alpha1.TenantCluster, condition metav1.Condition) {
	if condition.Status == metav1.ConditionFalse && condition.Reason != v1alpha1.ReasonReconciling {
		e.Recorder.Event(c, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
}

// RecordGrowth records that a tenant got a growth block because its waiting Services need
// addresses.
func (e Events) RecordGrowth(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation, need int32) {
	e.Recorder.Eventf(c, corev1.EventTypeNormal, eventGrown, "%s from pool %s for waiting Services: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
	e.logBlock("Growth", a, fmt.Sprintf("waiting Services need %s more", allocator.Counted(need, "address")))
}

// RecordShrink records that a growth block was released that had been idle for a time.
func (e Events) RecordShrink(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation, idle time.Duration) {
	e.Recorder.Eventf(c, corev1.EventTypeNormal, eventShrunk, "%s released to pool %s, unused: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
	e.logBlock("Shrink", a, fmt.Sprintf("no Service has used the addresses for %s", idle))
}

// RecordGrowthPrevented records why condition LoadBalancerIPsAvailable is not true.
func (e Events) RecordGrowthPrevented(c *v1alpha1.TenantCluster, condition metav1.Condition) {
	if condition.Status != metav1.ConditionTrue {
		e.Recorder.Event(c, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
	if condition.Status == metav1.ConditionFalse { // Unknown is an outage, which the session logs without the tenant's text, or a tenant that is too large
		e.Log.Info("Growth prevented", "tenant", c.Namespace+"/"+c.Name, "reason", condition.Reason+": "+condition.Message)
	}
}

// RecordPoolWritten records the new content of a tenant's IPAddressPool, and what has
// changed.
func (e Events) RecordPoolWritten(c *v1alpha1.TenantCluster, entries []string, change string) {
	message := "the tenant's IPAddressPool was deleted: there are no addresses to offer"
	if len(entries) > 0 {
		message = "the tenant's IPAddressPool offers " + strings.Join(entries, ", ")
	}
	e.Recorder.Event(c, corev1.EventTypeNormal, eventSynced, message)
	e.logMetalLB("MetalLB pool written", c, strings.Join(entries, ", "), change)
}

// RecordDrift records a change of IPAM's MetalLB objects by another writer. entries is
// what the tenant's IPAddressPool offers until the change is reverted.
func (e Events) RecordDrift(c *v1alpha1.TenantCluster, entries []string, change string) {
	e.Recorder.Event(c, corev1.EventTypeWarning, eventDrift, change+"; the change is reverted: use an IPAddressPool of another name for other addresses")
	e.logMetalLB("MetalLB drift", c, ShortenText(strings.Join(entries, ", ")), "another writer: "+change)
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
	e.logBlock("Release of allocation", a, "the TenantCluster was deleted")
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
	e.logBlock("Release of allocation", a, "the TenantCluster is gone")
}

// RecordPoolsExhausted records that the pools of a ProviderConfig have no free address.
func (e Events) RecordPoolsExhausted(p *v1alpha1.ProviderConfig, message string) {
	e.Recorder.Event(p, corev1.EventTypeWarning, eventPoolsExhausted, message)
}

// RecordAvoided records an address in a range for tenants that a Node, Machine or Service
// uses without an allocation.
func (e Events) RecordAvoided(p *v1alpha1.NetworkPool, used v1alpha1.InfrastructureAllocation) {
	user, remedy := "Node or Machine", "remove it from the machine"
	if used.ServiceRef != nil {
		user, remedy = "Service", "give the Service another address"
	}
	e.Recorder.Eventf(p, corev1.EventTypeWarning, eventAvoided,
		"%s is in a range for tenants and in use by a %s, but belongs to no IPAllocation: it is not allocated; reserve it, or %s", used.IP, user, remedy)
}

// RecordInfrastructureUnlisted records that the status of a pool has no room for all
// addresses that the platform uses.
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
