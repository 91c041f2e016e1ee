package object

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Purpose is the use of the addresses of a claim.
type Purpose string

// Purposes of claims.
const (
	PurposeNodes        Purpose = "nodes"
	PurposeLoadBalancer Purpose = "loadbalancer"
	PurposeVIP          Purpose = "vip"
	PurposeMachine      Purpose = "machine"
)

// Description is what people want to know of a claim, beside its addresses.
type Description struct {
	Purpose Purpose
	// Tenant is namespace/name of the TenantCluster, of the Cluster, or of the Service of
	// a ProxyVIP; "" without a tenant.
	Tenant string
	// Reason is why the claim is not Ready; "" if the status has no reason.
	Reason string
	// UnreadySince is since when the claim is not Ready; zero if the status does not
	// record the time.
	UnreadySince time.Time
	// AllocatedAt is when the range was allocated; zero if the status does not record the
	// time.
	AllocatedAt time.Time
	// TenantMissing: the status reports that the tenant does not exist.
	TenantMissing bool
	// Finalizer is the finalizer of the manager for claims of this kind; "" for kinds
	// without one.
	Finalizer string
	// AddressObject is the name of the address object in the status, in the namespace of
	// the claim; "" without one.
	AddressObject string
	// Mode and Ports are those of a proxy; other claims have none.
	Mode  string
	Ports []int32
}

// SetReason sets Reason and UnreadySince from the named condition, if the condition is
// present and not True.
func (d *Description) SetReason(conditions []metav1.Condition, name string) {
	if c := meta.FindStatusCondition(conditions, name); c != nil && c.Status != metav1.ConditionTrue {
		d.Reason, d.UnreadySince = cmp.Or(c.Message, c.Reason), c.LastTransitionTime.Time
	}
}
