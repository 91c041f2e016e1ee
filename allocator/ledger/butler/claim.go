package butler

import (
	"math"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Source is where an allocation's range stands.
type Source int

const (
	// Nowhere: the allocation waits for its range.
	Nowhere Source = iota
	// InSpec: spec.pinnedRange, answered by us or not.
	InSpec
	// InStatus: an earlier allocator's object, whose addresses stand in its status alone until they are adopted into spec. They
	// count in every phase: one that is Released holds them until it is gone, one that clashes is Failed and keeps them.
	InStatus
)

// RangeOf is the range that an allocation holds, or would hold once stored, and where that is written. The range is not valid where
// it stands nowhere, and where it cannot be read: the error then says why, and nothing is held.
func RangeOf(a *v1alpha1.IPAllocation) (allocator.Range, Source, error) {
	if p := a.Spec.PinnedRange; p != nil {
		r, errs := readPinned(p)
		return r, InSpec, errs.ToAggregate()
	}
	if s := a.Status; s.StartAddress != "" && s.EndAddress != "" {
		path := field.NewPath("status")
		r, errs := fields.Range(path, fields.At(path.Child("startAddress"), s.StartAddress), fields.At(path.Child("endAddress"), s.EndAddress))
		return r, InStatus, errs.ToAggregate()
	}
	return allocator.Range{}, Nowhere, nil
}

// CountOf is the size of the range that an allocation holds, else what its count says; nil where it says none, and of a larger range than a count can say.
func CountOf(a *v1alpha1.IPAllocation) *int32 {
	if r, _, err := RangeOf(a); err == nil && r.IsValid() && a.Spec.Count != nil && r.Size() <= math.MaxInt32 {
		return ptr.To(int32(r.Size()))
	}
	return a.Spec.Count
}

func readPinned(p *v1alpha1.PinnedIPRange) (allocator.Range, field.ErrorList) {
	path := field.NewPath("spec", "pinnedRange")
	return fields.Range(path, fields.At(path.Child("startAddress"), p.StartAddress), fields.At(path.Child("endAddress"), p.EndAddress))
}

// ClaimOf is what the ledger needs to know of a stored allocation. It holds its range wherever RangeOf finds one, answered by us
// or not. A range or a token that cannot be read counts as none; RangeOf tells the first from an allocation that waits.
func ClaimOf(a *v1alpha1.IPAllocation) ledger.Claim {
	claim := ledger.Claim{
		Key:             IPAllocationKey(a.Namespace, a.Name),
		UID:             string(a.UID),
		ResourceVersion: fields.ResourceVersion(a),
		Created:         a.CreationTimestamp.Time,
		Pool:            PoolKeyOf(a),
		Space:           a.Labels[v1alpha1.LabelRoutingDomain],
		Ready:           meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady),
		Flagged:         Flagged(a),
		Deleting:        a.DeletionTimestamp != nil,
	}
	claim.Token, _ = journal.ParseToken(a.Annotations[v1alpha1.AnnotationGrant])
	r, source, err := RangeOf(a)
	claim.Vouched = source == InStatus || a.Status.Phase == v1alpha1.PhaseAllocated || a.Status.Phase == v1alpha1.PhaseReleased
	if err == nil && r.IsValid() {
		claim.Ranges = []allocator.Range{r}
	}
	return claim
}

// Flagged tells whether an allocation is marked as one whose range another has.
func Flagged(a *v1alpha1.IPAllocation) bool {
	ready := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == v1alpha1.ReasonAddressConflict
}

// PinnedRange is a range as spec.pinnedRange holds it.
func PinnedRange(r allocator.Range) *v1alpha1.PinnedIPRange {
	return &v1alpha1.PinnedIPRange{StartAddress: r.First.String(), EndAddress: r.Last.String()}
}

// CIDRText is a range as status.cidr holds it: the network that it is, or "" where it is none.
func CIDRText(r allocator.Range) string {
	if p, ok := r.Prefix(); ok {
		return p.String()
	}
	return ""
}

// MissingLabels is the labels that an allocation should carry and does not: pool, tenant, team, type and, outside the default
// space, routing domain. What its author wrote stays, whatever it says.
func MissingLabels(a *v1alpha1.IPAllocation, space string) map[string]string {
	missing := map[string]string{
		v1alpha1.LabelNetworkPool:    fields.LabelValue(a.Spec.PoolRef.Name),
		v1alpha1.LabelTenant:         fields.LabelValue(a.Spec.TenantClusterRef.Name),
		v1alpha1.LabelTeam:           fields.LabelValue(a.Spec.TenantClusterRef.Namespace),
		v1alpha1.LabelAllocationType: string(a.Spec.Type),
	}
	if space != "" {
		missing[v1alpha1.LabelRoutingDomain] = space
	}
	for label := range a.Labels {
		delete(missing, label)
	}
	return missing
}
