package tenants

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Block is an IPAllocation of a tenant.
type Block struct {
	Name, Pool  string
	Kind        v1alpha1.IPAllocationType
	Growth      bool            // added on demand
	Range       allocator.Range // not valid while it waits for one
	Count       int32           // addresses it asks for, where Range is not valid; 0 for the pool's number
	Ready       bool            // the range may be used
	Failed      bool            // it cannot have what it asks for
	Deleting    bool
	Replaceable bool // made by address management, so that it may delete it, and not kept
	Fixed       bool // kept by its annotation, or pinned by its author
	Created     time.Time
	IdleSince   time.Time // zero while used, or not looked at yet
}

// BlocksOf is the allocations of one tenant among those of its pools' namespace, first blocks before those added, then by name. One
// that records the UID of an earlier tenant of the same name is not among them.
func BlocksOf(t Tenant, allocations []v1alpha1.IPAllocation) []Block {
	var blocks []Block
	for i := range allocations {
		if a := &allocations[i]; Owns(t, a) {
			blocks = append(blocks, blockOf(a))
		}
	}
	slices.SortFunc(blocks, func(a, b Block) int {
		if a.Growth != b.Growth {
			return cmp.Compare(truth(a.Growth), truth(b.Growth))
		}
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name)) // -lb-9 before -lb-10
	})
	return blocks
}

// Owns tells whether an allocation is the tenant's: its tenantClusterRef names it, and no UID but the tenant's is recorded.
func Owns(t Tenant, a *v1alpha1.IPAllocation) bool {
	uid, recorded := a.Annotations[v1alpha1.AnnotationTenantUID]
	return a.Spec.TenantClusterRef == t.ref() && (!recorded || uid == t.UID)
}

// blockOf reads an allocation. One that address management made never had its range from an author: it counts as pinned since it was restored.
func blockOf(a *v1alpha1.IPAllocation) Block {
	made, keep := a.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByIPAM, a.Annotations[v1alpha1.AnnotationKeep] == "true"
	b := Block{
		Name: a.Name, Pool: a.Spec.PoolRef.Name, Kind: a.Spec.Type,
		Growth:      a.Spec.Type == v1alpha1.TypeLoadBalancer && roleOf(a) == v1alpha1.RoleGrowth,
		Count:       ptr.Deref(a.Spec.Count, 0),
		Ready:       meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady),
		Failed:      a.Status.Phase == v1alpha1.PhaseFailed,
		Deleting:    a.DeletionTimestamp != nil,
		Replaceable: made && !keep,
		Fixed:       keep || isPinned(a) && !made,
		Created:     a.CreationTimestamp.Time,
	}
	if r, _, err := butler.RangeOf(a); err == nil {
		b.Range = r
	}
	if since, err := time.Parse(time.RFC3339, a.Annotations[v1alpha1.AnnotationIdleSince]); err == nil {
		b.IdleSince = since
	}
	return b
}

// size is how many addresses the block holds, or will.
func (b Block) size() int32 {
	if b.Range.IsValid() {
		return int32(min(b.Range.Size(), math.MaxInt32))
	}
	return b.Count
}

// usable tells whether the tenant may use the block's range.
func (b Block) usable() bool { return b.Ready && !b.Deleting && b.Range.IsValid() }

// New is the allocation to create for a block of count addresses; 0 leaves the number to the pool. The allocation goes where the pool is.
func New(t Tenant, kind v1alpha1.IPAllocationType, role, namespace, name, pool string, count int32) *v1alpha1.IPAllocation {
	a := &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        name,
			Annotations: map[string]string{v1alpha1.AnnotationTenantUID: t.UID},
		},
		Spec: v1alpha1.IPAllocationSpec{PoolRef: v1alpha1.LocalObjectReference{Name: pool}, TenantClusterRef: t.ref(), Type: kind},
	}
	if count > 0 {
		a.Spec.Count = &count
	}
	a.Labels = butler.MissingLabels(a, "")
	a.Labels[v1alpha1.LabelAllocationRole] = role
	a.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedByIPAM
	return a
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
