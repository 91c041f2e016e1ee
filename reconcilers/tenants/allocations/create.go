package allocations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations,verbs=create

// Request describes an allocation to create.
type Request struct {
	Tenant plan.Tenant
	// ChooseName returns a free name, as plan.InitialName and plan.GrowthName do.
	ChooseName func(isTaken func(name string) bool) string
	// Build returns the allocation with a name.
	Build func(name string) *v1alpha1.IPAllocation
}

// Result is the outcome of a create, exactly one of:
//
//	Created                      the allocation is new
//	Allocation without Created   the tenant already has an allocation of the name and type, not observed by the informers yet
//	Refusal                      the pool has no room, or not the pinned range; the message of the denial
type Result struct {
	Allocation *v1alpha1.IPAllocation
	Created    bool
	Refusal    string
}

// Create creates the allocation of a request. Names of other tenants' allocations are
// skipped. ChooseName decides which names of the tenant's own allocations are taken.
func (s Store) Create(ctx context.Context, r Request) (Result, error) {
	taken := map[string]bool{} // names found in use by others
	for {
		a := r.Build(r.ChooseName(func(name string) bool { return taken[name] || s.isOthers(ctx, r.Tenant, name) }))
		if taken[a.Name] {
			return Result{}, fmt.Errorf("every name for the allocation is in use, the last by IPAllocation %s: delete that IPAllocation, or wait until it is gone", a.Name)
		}
		// Read first: a create with an existing name fails, but the webhook has granted a
		// range by then, reserved until the grant expires.
		stored := &v1alpha1.IPAllocation{}
		switch err := s.Live.Get(ctx, client.ObjectKeyFromObject(a), stored); {
		case err == nil && plan.Owns(r.Tenant, stored) && stored.DeletionTimestamp == nil && stored.Spec.Type == a.Spec.Type:
			return Result{Allocation: stored}, nil
		case err == nil:
			taken[stored.Name] = true
			continue
		case !apierrors.IsNotFound(err):
			return Result{}, err
		}
		switch err := s.Client.Create(ctx, a); {
		case err == nil:
			return Result{Allocation: a, Created: true}, nil
		case isRefused(err):
			return Result{Refusal: causeOf(err)}, nil
		case !apierrors.IsAlreadyExists(err): // AlreadyExists: created between read and create, so read again
			return Result{}, err
		}
	}
}

// isOthers reports whether the informers have an allocation of the name that the tenant
// does not own.
func (s Store) isOthers(ctx context.Context, t plan.Tenant, name string) bool {
	a := &v1alpha1.IPAllocation{}
	return s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, a) == nil && !plan.Owns(t, a)
}

// isRefused reports whether a create was denied because the pool has no free block of the
// size, or because the pinned range is owned, reserved or outside.
func isRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeForbidden && c.Field == "spec.count" || strings.HasPrefix(c.Field, "spec.pinnedRange")
	})
}

// causeOf returns the message of the first cause of an API error, else the whole error.
func causeOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			return c.Message
		}
	}
	return err.Error()
}
