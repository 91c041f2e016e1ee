package report

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Tenant contains the claims of a tenant, and the fields of the tenant's TenantCluster
// and ProviderConfig that concern addresses.
type Tenant struct {
	APIVersion      string              `json:"apiVersion"`
	Kind            string              `json:"kind"`
	Tenant          string              `json:"tenant"`
	Addresses       []TenantAddresses   `json:"addresses"`
	Provider        *Object             `json:"provider,omitempty"`
	AllocationMode  string              `json:"allocationMode,omitempty"` // mode of load balancer addresses: static or elastic
	GrowthIncrement int32               `json:"growthIncrement,omitempty"`
	Conditions      []Condition         `json:"conditions,omitempty"`
	LoadBalancers   []LoadBalancerRange `json:"loadBalancers,omitempty"`
	ManualRange     string              `json:"manualRange,omitempty"` // range of load balancer addresses, set by hand in the TenantCluster and used without an IPAllocation
	NotRead         []string            `json:"notRead,omitempty"`
	Claims          []Claim             `json:"claims"`
}

// TenantAddresses is the number of addresses of a tenant for a purpose, in all routing
// domains.
type TenantAddresses struct {
	Purpose string `json:"purpose"`
	Count   int64  `json:"count"`
	Ranges  int    `json:"ranges"`
	Quota   int32  `json:"quota,omitempty"`
	Digits  Digits `json:"exact,omitempty"`

	// Text is the number of addresses in words, without saturation.
	Text string `json:"-"`
}

// Condition is a condition of an object.
type Condition struct {
	Type    string     `json:"type"`
	Status  string     `json:"status"`
	Reason  string     `json:"reason"`
	Message string     `json:"message"`
	Since   *time.Time `json:"since,omitempty"`
}

// LoadBalancerRange is the range of an IPAllocation for the load balancers of a tenant.
type LoadBalancerRange struct {
	Range         string     `json:"range"`
	RoutingDomain string     `json:"routingDomain,omitempty"`
	Claim         *Object    `json:"claim"`
	Growth        bool       `json:"growth"`
	IdleSince     *time.Time `json:"idleSince,omitempty"`
	Ready         bool       `json:"ready"`
}

// NewTenant returns a tenant with its claims.
func NewTenant(i *inventory.Inventory, name string, t inventory.Tenant, claims []Claim) Tenant {
	item := Tenant{APIVersion: APIVersion, Kind: KindTenant, Tenant: name, Addresses: []TenantAddresses{}, NotRead: t.NotRead, Claims: append([]Claim{}, claims...)}
	owned, counts := map[inventory.Purpose]map[string][]allocator.Range{}, map[inventory.Purpose]int{} // purpose -> routing domain -> ranges; purpose -> number of ranges
	for _, c := range i.Claims() {
		if c.Tenant != name || len(c.Ranges) == 0 {
			continue
		}
		if owned[c.Purpose] == nil {
			owned[c.Purpose] = map[string][]allocator.Range{}
		}
		owned[c.Purpose][c.Domain] = append(owned[c.Purpose][c.Domain], c.Ranges...)
		counts[c.Purpose] += len(c.Ranges)
	}
	for _, purpose := range []inventory.Purpose{inventory.PurposeNodes, inventory.PurposeLoadBalancer, inventory.PurposeVIP, inventory.PurposeMachine} {
		var ranges []allocator.Range // equal ranges of different routing domains are different addresses
		count := int64(0)
		for _, ofDomain := range owned[purpose] {
			ranges = append(ranges, allocator.Union(ofDomain)...)
			count += min(allocator.Total(ofDomain), math.MaxInt64-count)
		}
		if quota := t.Quota(purpose); len(ranges) > 0 || quota > 0 {
			addresses := TenantAddresses{Purpose: string(purpose), Count: count, Ranges: counts[purpose], Quota: quota, Text: allocator.AmountOf(ranges...)}
			addresses.Digits.add("count", count, allocator.DecimalOf(ranges...))
			item.Addresses = append(item.Addresses, addresses)
		}
	}
	if p := t.Provider; p != nil {
		item.Provider = &Object{Kind: "ProviderConfig", Namespace: p.Namespace, Name: p.Name}
		if n := p.Spec.Network; n != nil && n.Mode == butlerv1.NetworkModeIPAM {
			item.AllocationMode = string(butlerv1.LBAllocationStatic)
			if lb := n.LoadBalancer; lb != nil && lb.AllocationMode == butlerv1.LBAllocationElastic {
				item.AllocationMode, item.GrowthIncrement = string(butlerv1.LBAllocationElastic), ptr.Deref(lb.GrowthIncrement, 0)
			}
		}
	}
	for _, r := range i.LoadBalancers(name) {
		item.LoadBalancers = append(item.LoadBalancers, LoadBalancerRange{r.Range.String(), r.Domain, NewObject(r.Claim), r.Growth, OptionalTime(r.IdleSince), r.Ready})
	}
	if t.Cluster == nil {
		return item
	}
	for _, of := range []string{butlerv1.ConditionNetworkReady, butlerv1.ConditionAddressesAdopted, butlerv1.ConditionLoadBalancerIPsAvailable} {
		c := meta.FindStatusCondition(t.Cluster.Status.Conditions, of)
		if c != nil && (c.Type != butlerv1.ConditionAddressesAdopted || c.Status != metav1.ConditionTrue) { // adoption ends once
			item.Conditions = append(item.Conditions, Condition{c.Type, string(c.Status), c.Reason, c.Message, OptionalTime(c.LastTransitionTime.Time)})
		}
	}
	if n := t.Cluster.Spec.Networking; n != nil && n.LoadBalancerPool != nil && len(item.LoadBalancers) == 0 {
		if r, err := allocator.ParseRange(n.LoadBalancerPool.Start + "-" + n.LoadBalancerPool.End); err == nil {
			item.ManualRange = r.String()
		}
	}
	return item
}
