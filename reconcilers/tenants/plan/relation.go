package plan

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Relation is the relation of an IPAllocation to the TenantCluster that it names.
type Relation int

const (
	// Owned: the TenantCluster exists, and its UID is recorded.
	Owned Relation = iota
	// Unrecorded: the TenantCluster exists, and its UID must be recorded.
	Unrecorded
	// TenantUnknown: the TenantCluster does not exist, and no UID is recorded. The
	// allocation stays, because the TenantCluster may be created later.
	TenantUnknown
	// Orphaned: the recorded TenantCluster is gone. The allocation is flagged, and stays
	// for a while.
	Orphaned
	// Abandoned: the recorded TenantCluster has been gone for long. The allocation is
	// deleted once no machine uses it.
	Abandoned
	// Kept: the recorded TenantCluster is gone, and annotation keep keeps the allocation.
	Kept
)

// RelationOf returns the relation of an allocation, given the UID of the named
// TenantCluster, "" if the API server has answered that the TenantCluster does not exist.
// For Orphaned, the time is when the allocation becomes Abandoned.
func RelationOf(a *v1alpha1.IPAllocation, uid string, orphanAfter time.Duration, now time.Time) (Relation, time.Time) {
	recorded := a.Annotations[v1alpha1.AnnotationTenantUID]
	switch {
	case uid != "" && recorded == uid:
		return Owned, time.Time{}
	case uid != "" && recorded == "":
		return Unrecorded, time.Time{}
	case recorded == "":
		return TenantUnknown, time.Time{}
	case a.Annotations[v1alpha1.AnnotationKeep] == "true":
		return Kept, time.Time{}
	}
	missing := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	if missing == nil || missing.Status != "True" {
		return Orphaned, now.Add(orphanAfter)
	}
	if at := missing.LastTransitionTime.Add(orphanAfter); now.Before(at) {
		return Orphaned, at
	}
	return Abandoned, time.Time{}
}

// NeedsTeam reports whether label team of an allocation must become the label of its
// tenant, because the present value is not from an author:
//
//	allocation created by IPAM   every other value
//	other allocations            no value, or the namespace of the TenantCluster, which the webhooks write without knowledge of the TenantCluster;
//	                             but not if isDeclared
func NeedsTeam(t Tenant, a *v1alpha1.IPAllocation) bool {
	label, labelled := a.Labels[v1alpha1.LabelTeam]
	if label == t.TeamLabel() {
		return false
	}
	return !labelled || a.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByIPAM || label == butler.TeamLabel("", t.Namespace) && !isDeclared(a, v1alpha1.LabelTeam)
}

// isDeclared reports whether a manifest that a tool may apply again has a label of an
// object: another value would not last. The answer is complete for an object read from
// the API server: the informers have no managedFields.
func isDeclared(o metav1.Object, label string) bool {
	for _, entry := range o.GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.FieldsV1 != nil && hasField(entry.FieldsV1.GetRawBytes(), "f:metadata", "f:labels", "f:"+label) {
			return true
		}
	}
	return hasField([]byte(o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]), "metadata", "labels", label)
}

// hasField reports whether a JSON document has a field.
func hasField(document []byte, path ...string) bool {
	for _, name := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(document, &fields) != nil || fields[name] == nil {
			return false
		}
		document = fields[name]
	}
	return true
}

// ReasonNotToRelease returns why the blocks of a deleted tenant must not be released yet;
// "" if the release may begin. machines is the number of the tenant's remaining Machines:
// each Machine may announce a load balancer address, so one Machine delays every block.
// machineAddresses returns the addresses of Nodes and Machines in a routing domain.
func ReasonNotToRelease(blocks []Block, machines int, machineAddresses func(domain string) []netip.Addr) string {
	if machines > 0 {
		return fmt.Sprintf("%s of the tenant %s left", allocator.Counted(machines, "machine"), allocator.Agree(machines, "is", "are"))
	}
	for _, b := range blocks {
		if reason := b.reasonInUse(machineAddresses); reason != "" {
			return reason
		}
	}
	return ""
}

// ReasonNotToCollect returns why an abandoned allocation must not be deleted yet; "" if
// the delete may begin.
func ReasonNotToCollect(a *v1alpha1.IPAllocation, machineAddresses func(domain string) []netip.Addr) string {
	return blockOf(a).reasonInUse(machineAddresses)
}

// reasonInUse names the lowest address of the block that a machine has. The addresses
// have no order, and the message must not change without a reason.
func (b Block) reasonInUse(machineAddresses func(domain string) []netip.Addr) string {
	inUse := slices.DeleteFunc(slices.Clone(machineAddresses(b.Domain)), func(a netip.Addr) bool { return !b.Range.Contains(a) })
	if len(inUse) == 0 {
		return ""
	}
	return fmt.Sprintf("%s of IPAllocation %s is still in use by a node", slices.MinFunc(inUse, netip.Addr.Compare), b.Name)
}
