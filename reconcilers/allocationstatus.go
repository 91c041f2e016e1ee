package reconcilers

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/claims"
)

const (
	// allocatedBy is status.allocatedBy of every allocation, whichever component
	// allocated: clients compare the value.
	allocatedBy = "networkpool-controller"
	// maxListed is the size of the largest range whose addresses are listed in
	// status.addresses.
	maxListed = 4096
)

// allocatedStatus returns the status of an allocation that owns its range. A time and
// author in the status stay.
func allocatedStatus(a *v1alpha1.IPAllocation, r allocator.Range, now metav1.Time) *v1alpha1.IPAllocationStatus {
	s := a.Status.DeepCopy()
	s.Phase = v1alpha1.PhaseAllocated
	s.CIDR = butler.FormatCIDR(r)
	s.StartAddress, s.EndAddress = r.First.String(), r.Last.String()
	s.AllocatedCount = r.Size()
	s.Addresses = nil
	message := fmt.Sprintf("%s %s allocated from %s", allocator.AmountOf(r), allocator.Plural(r.Size(), "IP"), a.Spec.PoolRef.Name)
	if r.Size() <= maxListed {
		s.Addresses = make([]string, 0, r.Size())
		for addr := range r.Addresses() {
			s.Addresses = append(s.Addresses, addr.String())
		}
	} else {
		message += fmt.Sprintf("; more than %d are not listed: see startAddress and endAddress", maxListed)
	}
	if s.AllocatedAt == nil {
		s.AllocatedAt = &now
	}
	if s.AllocatedBy == "" {
		s.AllocatedBy = allocatedBy
	}
	setReady(a, s, metav1.ConditionTrue, v1alpha1.ReasonAllocated, message)
	return s
}

// failedStatus returns the status of an allocation that must not use addresses, or has
// none. Addresses in the status stay: they may be the only record of an earlier
// allocator.
func failedStatus(a *v1alpha1.IPAllocation, phase v1alpha1.IPAllocationPhase, reason, message string) *v1alpha1.IPAllocationStatus {
	s := a.Status.DeepCopy()
	s.Phase = phase
	setReady(a, s, metav1.ConditionFalse, reason, message)
	return s
}

// releasedStatus returns the status of an allocation that is being deleted and releases
// its addresses. The time of the first call stays.
func releasedStatus(a *v1alpha1.IPAllocation, now metav1.Time) *v1alpha1.IPAllocationStatus {
	s := failedStatus(a, v1alpha1.PhaseReleased, v1alpha1.ReasonReleased, "the addresses are free when this object is gone and the reuseDelay of the pool, counted from status.releasedAt, has passed")
	if s.ReleasedAt == nil {
		s.ReleasedAt = &now
	}
	return s
}

// setReady sets condition Ready, and the fields that follow from the phase.
func setReady(a *v1alpha1.IPAllocation, s *v1alpha1.IPAllocationStatus, status metav1.ConditionStatus, reason, message string) {
	s.ObservedGeneration = a.Generation
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message, ObservedGeneration: a.Generation}
	meta.SetStatusCondition(&s.Conditions, condition)
	if s.Phase != v1alpha1.PhaseFailed {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionStalled)
		return
	}
	condition.Type, condition.Status = v1alpha1.ConditionStalled, metav1.ConditionTrue
	meta.SetStatusCondition(&s.Conditions, condition)
}

// deniedStatus returns the status for the ledger's denial of a range. The text changes
// only when the cause does, so that a waiting allocation is not written for every address
// that is allocated or released.
func deniedStatus(a *v1alpha1.IPAllocation, count int64, err error) *v1alpha1.IPAllocationStatus {
	pool := butler.PoolKey(a)
	var (
		noPool   *ledger.NoPoolError
		deleting *ledger.PoolDeletingError
		paused   *ledger.PoolPausedError
		owned    *ledger.OwnedError
	)
	switch {
	case errors.As(err, &paused):
		return failedStatus(a, v1alpha1.PhasePending, v1alpha1.ReasonPoolPaused, err.Error())
	case errors.As(err, &noPool):
		return failedStatus(a, v1alpha1.PhasePending, v1alpha1.ReasonPoolNotFound,
			fmt.Sprintf("pool %s does not exist: the allocation is made as soon as it does", pool))
	case errors.As(err, &deleting):
		return failedStatus(a, v1alpha1.PhasePending, v1alpha1.ReasonDeleting, err.Error())
	case errors.As(err, &owned):
		return failedStatus(a, v1alpha1.PhaseFailed, v1alpha1.ReasonAllocationFailed, claims.OwnedText(err, owned, a.Namespace))
	case errors.Is(err, allocator.ErrExhausted):
		return failedStatus(a, v1alpha1.PhaseFailed, v1alpha1.ReasonPoolExhausted,
			fmt.Sprintf("pool exhausted: pool %s has no free block of %s: enlarge it%s%s", pool, allocator.Counted(count, "address"),
				allocator.Agree(count, " or release some", ", release some or ask for fewer"), claims.PromisedText(err)))
	default:
		return failedStatus(a, v1alpha1.PhaseFailed, v1alpha1.ReasonAllocationFailed, err.Error())
	}
}

// setNotOffered sets condition NotOffered of a claim in a generation, and removes it if e
// is nil. It reports whether the message differs from that before.
func setNotOffered(conditions *[]metav1.Condition, generation int64, e *ledger.NotOfferedError) bool {
	if e == nil {
		return meta.RemoveStatusCondition(conditions, v1alpha1.ConditionNotOffered)
	}
	reason, message := v1alpha1.ReasonOutsidePool, claims.NotOfferedText(e)
	if e.PoolMissing() {
		reason = v1alpha1.ReasonPoolNotFound
	}
	before := meta.FindStatusCondition(*conditions, v1alpha1.ConditionNotOffered)
	isNews := before == nil || before.Message != message
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionNotOffered, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation,
	})
	return isNews
}
