package allocations

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// WaitingTenants is the set of TenantClusters that wait for room in a pool. Safe for
// concurrent use.
type WaitingTenants struct {
	mu      sync.Mutex
	tenants map[types.NamespacedName]bool
}

// NewWaitingTenants returns an empty set.
func NewWaitingTenants() *WaitingTenants {
	return &WaitingTenants{tenants: map[types.NamespacedName]bool{}}
}

// SetWaiting adds a tenant to the set, or removes it.
func (w *WaitingTenants) SetWaiting(tenant types.NamespacedName, waiting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiting {
		w.tenants[tenant] = true
	} else {
		delete(w.tenants, tenant)
	}
}

// List returns the tenants in no particular order.
func (w *WaitingTenants) List() (list []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for tenant := range w.tenants {
		list = append(list, tenant)
	}
	return list
}
