package tenancy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/overtaken"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations,verbs=create;delete

// naming is tenants.InitialName or tenants.GrowthName of a tenant.
type naming func(taken func(string) bool) string

// create asks for a block. fresh is false where the tenant has one of that name already, which whoever asks has not seen yet: names of the tenant's
// own blocks count as taken only as far as it has seen them. Refused for want of room, the refusal says so in the pool's words.
func (d *desk) create(ctx context.Context, t tenants.Tenant, name naming, block func(name string) *v1alpha1.IPAllocation) (
	a *v1alpha1.IPAllocation, fresh bool, refusal string, err error,
) {
	others := map[string]bool{}
	for {
		a = block(name(func(n string) bool { return others[n] || d.foreign(ctx, t, n) }))
		if others[a.Name] {
			return nil, false, "", fmt.Errorf("the names that its block could have are taken, the last by IPAllocation %s: delete that, or wait until it is gone", a.Name)
		}
		// A create of a name that is there has a range all the same, until its grant ends.
		stored := &v1alpha1.IPAllocation{}
		switch err := d.live.Get(ctx, client.ObjectKeyFromObject(a), stored); {
		case err == nil && tenants.Owns(t, stored) && stored.DeletionTimestamp == nil && stored.Spec.Type == a.Spec.Type:
			return stored, false, "", nil
		case err == nil:
			others[stored.Name] = true
			continue
		case !apierrors.IsNotFound(err):
			return nil, false, "", err
		}
		switch err := d.client.Create(ctx, a); {
		case err == nil:
			return a, true, "", nil
		case noRoom(err):
			return nil, false, messageOf(err), nil
		case !apierrors.IsAlreadyExists(err): // else somebody was faster: look again
			return nil, false, "", err
		}
	}
}

// foreign tells whether somebody else has an allocation of a name.
func (d *desk) foreign(ctx context.Context, t tenants.Tenant, name string) bool {
	a := &v1alpha1.IPAllocation{}
	return d.client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: name}, a) == nil && !tenants.Owns(t, a)
}

// noRoom tells whether a pool has refused an allocation because it has no block as large, from every other refusal.
func noRoom(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsForbidden(err) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeForbidden && c.Field == "spec.count" })
}

// messageOf is what an API server's answer says, without where it came from.
func messageOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			return c.Message
		}
	}
	return err.Error()
}

// drop deletes a block as it was seen, and says whether it did. One that has changed since is looked at again.
func (d *desk) drop(ctx context.Context, a *v1alpha1.IPAllocation) (bool, error) {
	err := d.client.Delete(ctx, a, client.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion})
	return err == nil, overtaken.Ignore(ctx, d.live, a, err)
}
