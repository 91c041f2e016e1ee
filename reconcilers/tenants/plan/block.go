package plan

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Block is an IPAllocation of a tenant.
type Block struct {
	Name, Pool    string
	Kind          v1alpha1.IPAllocationType
	Growth        bool            // growth block, else initial block
	Range         allocator.Range // invalid until allocated
	Domain        string          // routing domain of the range
	Count         int32           // requested addresses, while Range is invalid; 0 for the pool's default
	Ready         bool            // the range may be used
	Failed        bool            // the request cannot be satisfied
	Deleting      bool
	Replaceable   bool // IPAM created the block and may delete it: no annotation keep
	NeverReleased bool // annotation keep, or a range pinned by the author
	Created       time.Time
	IdleSince     time.Time // zero while used, and before the first decision
}

// BlocksOf returns the blocks that a tenant owns: initial blocks before growth blocks,
// then by name with numbers in numeric order.
func BlocksOf(t Tenant, allocations []v1alpha1.IPAllocation) []Block {
	var blocks []Block
	for i := range allocations {
		if a := &allocations[i]; Owns(t, a) {
			blocks = append(blocks, blockOf(a))
		}
	}
	slices.SortFunc(blocks, func(a, b Block) int {
		if a.Growth != b.Growth {
			return cmp.Compare(boolToInt(a.Growth), boolToInt(b.Growth))
		}
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name)) // -lb-9 before -lb-10
	})
	return blocks
}

// Owns reports whether an allocation belongs to a tenant: tenantClusterRef names the
// tenant, and the recorded UID, if present, equals the tenant's. The UID of an earlier
// tenant with the same name differs.
func Owns(t Tenant, a *v1alpha1.IPAllocation) bool {
	uid, recorded := a.Annotations[v1alpha1.AnnotationTenantUID]
	return a.Spec.TenantClusterRef == t.reference() && (!recorded || uid == t.UID)
}

// blockOf returns the block of an allocation. IPAM pins initial blocks only: a growth
// block that IPAM created and that is pinned was restored from a backup, and may be
// released.
func blockOf(a *v1alpha1.IPAllocation) Block {
	createdByIPAM, keep := a.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByIPAM, a.Annotations[v1alpha1.AnnotationKeep] == "true"
	b := Block{
		Name: a.Name, Pool: a.Spec.PoolRef.Name, Kind: a.Spec.Type,
		Growth:        a.Spec.Type == v1alpha1.TypeLoadBalancer && roleOf(a) == v1alpha1.RoleGrowth,
		Count:         ptr.Deref(a.Spec.Count, 0),
		Ready:         meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady),
		Failed:        a.Status.Phase == v1alpha1.PhaseFailed,
		Deleting:      a.DeletionTimestamp != nil,
		Replaceable:   createdByIPAM && !keep,
		NeverReleased: keep || isPinned(a) && !createdByIPAM,
		Created:       a.CreationTimestamp.Time,
	}
	if r, _, err := butler.FindRange(a); err == nil {
		b.Range = r
	}
	b.Domain, _ = object.RoutingDomain(a)
	if since, err := time.Parse(time.RFC3339, a.Annotations[v1alpha1.AnnotationIdleSince]); err == nil {
		b.IdleSince = since
	}
	return b
}

// addressCount returns how many addresses the block has or requests.
func (b Block) addressCount() int32 {
	if b.Range.IsValid() {
		return int32(min(b.Range.Size(), math.MaxInt32))
	}
	return b.Count
}

// isUsable reports whether the tenant may use the range of the block.
func (b Block) isUsable() bool { return b.Ready && !b.Deleting && b.Range.IsValid() }

// quotaUsed returns how many addresses of a kind count against the quota: allocated and
// requested ones, but not requests that failed.
func quotaUsed(blocks []Block, kind v1alpha1.IPAllocationType) int32 {
	var sum int64
	for _, b := range blocks {
		if b.Kind == kind && (!b.Failed || b.Range.IsValid()) {
			sum += int64(b.addressCount())
		}
	}
	return saturate(sum)
}

// NewAllocation returns the allocation to create for a block of count addresses; 0 for
// the pool's default. namespace is that of the pool.
func NewAllocation(t Tenant, kind v1alpha1.IPAllocationType, role, namespace, name, pool string, count int32) *v1alpha1.IPAllocation {
	a := &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        name,
			Annotations: map[string]string{v1alpha1.AnnotationTenantUID: t.UID},
		},
		Spec: v1alpha1.IPAllocationSpec{PoolRef: v1alpha1.LocalObjectReference{Name: pool}, TenantClusterRef: t.reference(), Type: kind},
	}
	if count > 0 {
		a.Spec.Count = &count
	}
	a.Labels = butler.FindMissingLabels(a, "")
	a.Labels[v1alpha1.LabelTeam] = t.TeamLabel()
	a.Labels[v1alpha1.LabelAllocationRole] = role
	a.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedByIPAM
	return a
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func saturate(n int64) int32 { return int32(max(min(n, math.MaxInt32), math.MinInt32)) }
