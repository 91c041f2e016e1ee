package butler

import (
	"math"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// RangeSource is the part of an allocation that records its range.
type RangeSource int

const (
	// RangeMissing: the allocation waits for its range.
	RangeMissing RangeSource = iota
	// RangeInSpec: spec.pinnedRange, filled in by the allocator or by the author.
	RangeInSpec
	// RangeInStatus: only status has the addresses, from an earlier allocator, until they
	// are adopted into spec. They are owned in every phase: a Released allocation owns
	// them until the object is gone, and a Failed allocation in conflict keeps them.
	RangeInStatus
)

// FindRange returns the range that an allocation owns, or would own once stored, with its
// source. The range is not valid if the allocation has none or if parsing fails; in the
// second case the error gives the reason, and the allocation owns no addresses.
func FindRange(a *v1alpha1.IPAllocation) (allocator.Range, RangeSource, error) {
	if p := a.Spec.PinnedRange; p != nil {
		r, errs := parsePinnedRange(p)
		return r, RangeInSpec, errs.ToAggregate()
	}
	if r, errs := parseStatus(a.Status); r.IsValid() || len(errs) > 0 {
		return r, RangeInStatus, errs.ToAggregate()
	}
	return allocator.Range{}, RangeMissing, nil
}

// FindCount returns the size of an allocation's range, else spec.count. It is nil without
// spec.count; spec.count stays as it is for a range larger than an int32 can count.
func FindCount(a *v1alpha1.IPAllocation) *int32 {
	if r, _, err := FindRange(a); err == nil && r.IsValid() && a.Spec.Count != nil && r.Size() <= math.MaxInt32 {
		return ptr.To(int32(r.Size()))
	}
	return a.Spec.Count
}

func parsePinnedRange(p *v1alpha1.PinnedIPRange) (allocator.Range, field.ErrorList) {
	path := field.NewPath("spec", "pinnedRange")
	return fieldtext.ParseRange(path, fieldtext.At(path.Child("startAddress"), p.StartAddress), fieldtext.At(path.Child("endAddress"), p.EndAddress))
}

// ConvertClaim converts a stored allocation for the ledger. The allocation owns the range
// that FindRange returns, by whichever client it was written. An invalid range or token
// counts as absent; FindRange tells an invalid range from a missing range.
func ConvertClaim(a *v1alpha1.IPAllocation) ledger.Claim {
	claim := ledger.Claim{
		Key:             IPAllocationKey(a.Namespace, a.Name),
		UID:             string(a.UID),
		ResourceVersion: object.ResourceVersion(a),
		Created:         a.CreationTimestamp.Time,
		Pool:            PoolKey(a),
		Ready:           meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady),
		Flagged:         IsFlagged(a),
		Deleting:        a.DeletionTimestamp != nil,
	}
	claim.RoutingDomain, claim.RoutingDomainGranted = object.RoutingDomain(a)
	claim.Token, _ = journal.ParseToken(a.Annotations[v1alpha1.AnnotationGrant])
	r, source, err := FindRange(a)
	claim.AllocatedEarlier = source == RangeInStatus || a.Status.Phase == v1alpha1.PhaseAllocated || a.Status.Phase == v1alpha1.PhaseReleased
	if err == nil && r.IsValid() {
		claim.Ranges = []allocator.Range{r}
		known, errs := parseStatus(a.Status)
		claim.Altered = len(errs) == 0 && known.IsValid() && known != r
	}
	return claim
}

// parseStatus returns the range in the status of an allocation; not valid if the status
// has none.
func parseStatus(s v1alpha1.IPAllocationStatus) (allocator.Range, field.ErrorList) {
	if s.StartAddress == "" || s.EndAddress == "" {
		return allocator.Range{}, nil
	}
	path := field.NewPath("status")
	return fieldtext.ParseRange(path, fieldtext.At(path.Child("startAddress"), s.StartAddress), fieldtext.At(path.Child("endAddress"), s.EndAddress))
}

// IsFlagged reports whether an allocation is marked as the loser of an address conflict.
func IsFlagged(a *v1alpha1.IPAllocation) bool {
	ready := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == v1alpha1.ReasonAddressConflict
}

// FormatPinnedRange formats a range for spec.pinnedRange.
func FormatPinnedRange(r allocator.Range) *v1alpha1.PinnedIPRange {
	return &v1alpha1.PinnedIPRange{StartAddress: r.First.String(), EndAddress: r.Last.String()}
}

// FormatCIDR formats a range for status.cidr: as a network, or "" for a range that is not
// a network.
func FormatCIDR(r allocator.Range) string {
	if p, ok := r.Prefix(); ok {
		return p.String()
	}
	return ""
}

// TeamLabel returns label team for the allocations of a TenantCluster: the name of its
// team, else its namespace, as for a TenantCluster that is not known. A name that is no
// label value counts as no name: Butler's own CRD does not check names.
func TeamLabel(team, namespace string) string {
	if label := object.LabelValue(team); label != "" && len(validation.IsValidLabelValue(label)) == 0 {
		return label
	}
	return object.LabelValue(namespace)
}

// FindMissingLabels returns the labels to add to an allocation: pool, tenant, team, type
// and, outside the default routing domain, its routing domain. Labels written by the
// author stay unchanged.
func FindMissingLabels(a *v1alpha1.IPAllocation, routingDomain string) map[string]string {
	missing := map[string]string{
		v1alpha1.LabelNetworkPool:    object.LabelValue(a.Spec.PoolRef.Name),
		v1alpha1.LabelTenant:         object.LabelValue(a.Spec.TenantClusterRef.Name),
		v1alpha1.LabelTeam:           TeamLabel("", a.Spec.TenantClusterRef.Namespace),
		v1alpha1.LabelAllocationType: string(a.Spec.Type),
	}
	if routingDomain != "" {
		missing[v1alpha1.LabelRoutingDomain] = routingDomain
	}
	for label := range a.Labels {
		delete(missing, label)
	}
	return missing
}

// FillSpec writes a range into the absent fields spec.pinnedRange and spec.count: the
// granted range, or without a grant the range that the allocation already names. A size
// that spec.count cannot hold is not written.
func FillSpec(a *v1alpha1.IPAllocation, ranges []allocator.Range) {
	r, _, _ := FindRange(a)
	if len(ranges) > 0 {
		r = ranges[0]
	}
	if a.Spec.PinnedRange == nil {
		a.Spec.PinnedRange = FormatPinnedRange(r)
	}
	if size := r.Size(); a.Spec.Count == nil && size <= math.MaxInt32 {
		a.Spec.Count = ptr.To(int32(size))
	}
}

// RestoreSpec restores the stored range and count that an update omits.
func RestoreSpec(stored, updated *v1alpha1.IPAllocation) {
	if updated.Spec.PinnedRange == nil {
		updated.Spec.PinnedRange = stored.Spec.PinnedRange
	}
	if updated.Spec.Count == nil {
		updated.Spec.Count = FindCount(stored)
	}
}

// CompleteMetadata adds missing labels of an allocation in a routing domain, and the
// finalizer that keeps the allocation until its release is recorded. It reports whether
// any was missing.
func CompleteMetadata(a *v1alpha1.IPAllocation, routingDomain string) bool {
	labelled := object.AddLabels(a, FindMissingLabels(a, routingDomain))
	return object.AddFinalizer(a, v1alpha1.FinalizerIPAllocation) || labelled
}
