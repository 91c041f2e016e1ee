package tenancy

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Reasons of events on a TenantCluster.
const (
	eventAllocated    = "AddressesAllocated"
	eventGrown        = "LoadBalancerIPsAdded"
	eventShrunk       = "LoadBalancerIPsReleased"
	eventSynced       = "MetalLBSynced"
	eventDrift        = "MetalLBDriftCorrected"
	eventReachable    = "TenantReachable"
	eventReleaseWaits = "AddressReleaseWaits"
	eventReleased     = "AddressesReleased"
)

// Reasons of events on an IPAllocation, and the last on its pool too.
const (
	eventOrphaned = "TenantClusterMissing"
	eventOrphanGC = "OrphanedAllocationGC"
)

// eventAvoided is on a NetworkPool.
const eventAvoided = "AddressAvoided"

// eventPoolsExhausted is on a ProviderConfig.
const eventPoolsExhausted = "PoolsExhausted"

type events struct{ recorder record.EventRecorder }

func (e events) allocated(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.recorder.Eventf(c, corev1.EventTypeNormal, eventAllocated, "%s for %s from pool %s: IPAllocation %s", rangeText(a), a.Spec.Type, a.Spec.PoolRef.Name, a.Name)
}

// networkReady tells of what a tenant lacks to begin with; that it lacks nothing, allocated has said.
func (e events) networkReady(c *v1alpha1.TenantCluster, ready metav1.Condition) {
	if ready.Status == metav1.ConditionFalse && ready.Reason != v1alpha1.ReasonReconciling {
		e.recorder.Event(c, corev1.EventTypeWarning, ready.Reason, ready.Message)
	}
}

func (e events) grown(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.recorder.Eventf(c, corev1.EventTypeNormal, eventGrown, "%s from pool %s for waiting Services: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
}

func (e events) shrunk(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.recorder.Eventf(c, corev1.EventTypeNormal, eventShrunk, "%s back to pool %s, unused: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
}

// growth tells what is in the way of more addresses.
func (e events) growth(c *v1alpha1.TenantCluster, condition metav1.Condition) {
	if condition.Status != metav1.ConditionTrue {
		e.recorder.Event(c, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
}

func (e events) synced(c *v1alpha1.TenantCluster, entries []string) {
	content := strings.Join(entries, ", ")
	if content == "" {
		content = "nothing, so it was deleted"
	}
	e.recorder.Eventf(c, corev1.EventTypeNormal, eventSynced, "the tenant's IPAddressPool offers %s", content)
}

func (e events) drift(c *v1alpha1.TenantCluster, what string) {
	e.recorder.Event(c, corev1.EventTypeWarning, eventDrift, what+"; it is put back: use an IPAddressPool of another name for other addresses")
}

func (e events) reachable(c *v1alpha1.TenantCluster) {
	e.recorder.Event(c, corev1.EventTypeNormal, eventReachable, "the tenant's API server answers again")
}

func (e events) releaseWaits(c *v1alpha1.TenantCluster, why string) {
	e.recorder.Event(c, corev1.EventTypeNormal, eventReleaseWaits, "the addresses are not released yet: "+why)
}

func (e events) released(c *v1alpha1.TenantCluster, a *v1alpha1.IPAllocation) {
	e.recorder.Eventf(c, corev1.EventTypeNormal, eventReleased, "%s back to pool %s: IPAllocation %s", rangeText(a), a.Spec.PoolRef.Name, a.Name)
}

func (e events) orphaned(a *v1alpha1.IPAllocation, message string) {
	e.recorder.Event(a, corev1.EventTypeWarning, eventOrphaned, message)
}

func (e events) collected(a *v1alpha1.IPAllocation, pool *v1alpha1.NetworkPool) {
	message := fmt.Sprintf("IPAllocation %s (%s) is released: its TenantCluster %s/%s is gone", a.Name, rangeText(a), a.Spec.TenantClusterRef.Namespace, a.Spec.TenantClusterRef.Name)
	e.recorder.Event(a, corev1.EventTypeNormal, eventOrphanGC, message)
	if pool != nil {
		e.recorder.Event(pool, corev1.EventTypeNormal, eventOrphanGC, message)
	}
}

func (e events) poolsExhausted(p *v1alpha1.ProviderConfig, message string) {
	e.recorder.Event(p, corev1.EventTypeWarning, eventPoolsExhausted, message)
}

func (e events) avoided(p *v1alpha1.NetworkPool, a netip.Addr) {
	e.recorder.Eventf(p, corev1.EventTypeWarning, eventAvoided,
		"%s is in a range for tenants and was seen on a Node or Machine, but no IPAllocation holds it: it is not handed out; reserve it, or take it off the machine", a)
}

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
