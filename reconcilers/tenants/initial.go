package tenants

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Wish is a first block that a tenant lacks.
type Wish struct {
	Kind  v1alpha1.IPAllocationType
	Tries []Try  // in order: the next one where a pool refuses for want of room
	Stale string // name of a block in its place that failed, to delete first; "" where there is none
}

// Try is what to ask one pool for.
type Try struct {
	Pool  string
	Count int32
}

// ReplaceAfter is how old a block must be that failed, to be replaced: where no webhook refuses what a full pool has no room for, a block fails
// in the moment in which it is made, and so would the next.
const ReplaceAfter = 10 * time.Second

// Missing is the first blocks that a tenant lacks: one for nodes and one for load balancers. pools is the NetworkPools that exist, by name;
// others are passed over. A block in any state stands for its kind, but for one of address management's own that failed: that is asked
// for anew, of the pools behind the one that failed first.
func Missing(t Tenant, p Policy, blocks []Block, pools map[string]*v1alpha1.NetworkPool) []Wish {
	if !p.IPAM {
		return nil
	}
	var wishes []Wish
	if p.Nodes {
		if w, ok := wishFor(v1alpha1.TypeNodes, p, blocks, pools, p.nodesIn); ok {
			wishes = append(wishes, w)
		}
	}
	room := p.MaxLoadBalancers - held(blocks, v1alpha1.TypeLoadBalancer)
	if min(p.lbIn(t, nil), room) < 1 {
		return wishes
	}
	if w, ok := wishFor(v1alpha1.TypeLoadBalancer, p, blocks, pools, func(pool *v1alpha1.NetworkPool) int32 { return min(p.lbIn(t, pool), room) }); ok {
		wishes = append(wishes, w)
	}
	return wishes
}

func wishFor(
	kind v1alpha1.IPAllocationType, p Policy, blocks []Block, pools map[string]*v1alpha1.NetworkPool, count func(*v1alpha1.NetworkPool) int32,
) (Wish, bool) {
	w := Wish{Kind: kind}
	order := p.Pools
	for _, b := range blocks {
		if b.Kind != kind || b.Growth {
			continue
		}
		if !b.Failed || !b.Replaceable {
			return Wish{}, false
		}
		w.Stale = b.Name
		if i := slices.Index(order, b.Pool); i >= 0 {
			order = slices.Concat(order[i+1:], order[:i+1])
		}
	}
	for _, name := range order {
		if pool := pools[name]; pool != nil && pool.DeletionTimestamp == nil {
			w.Tries = append(w.Tries, Try{name, count(pool)})
		}
	}
	return w, true
}

// held is how many addresses of a kind count against a quota: all that are held or waited for.
func held(blocks []Block, kind v1alpha1.IPAllocationType) int32 {
	var sum int64
	for _, b := range blocks {
		if b.Kind == kind && (!b.Failed || b.Range.IsValid()) {
			sum += int64(b.size())
		}
	}
	return saturated(sum)
}

// Refusals is what pools answered that have no room, in the order in which they were asked: the last answer of each pool.
type Refusals []Refusal

// Refusal is what a pool answered.
type Refusal struct{ Pool, Text string }

// Add takes in what a pool answered.
func (r *Refusals) Add(pool, text string) {
	*r = append(slices.DeleteFunc(*r, func(o Refusal) bool { return o.Pool == pool }), Refusal{pool, text})
}

// maxRefusals is how many pools a message names: a condition has room for some.
const maxRefusals = 8

// String names each pool with its answer. absent are further pools, which were not asked.
func (r Refusals) String(absent ...string) string {
	var texts []string
	for _, refusal := range r {
		texts = append(texts, refusal.Text)
	}
	for _, name := range absent {
		texts = append(texts, fmt.Sprintf("pool %s does not exist, or is being deleted", name))
	}
	if more := len(texts) - maxRefusals; more > 0 {
		texts = append(texts[:maxRefusals], allocator.Counted(more, "more pool"))
	}
	return strings.Join(texts, "; ")
}

// Absent is the pools of a policy that do not exist, or are being deleted.
func Absent(p Policy, pools map[string]*v1alpha1.NetworkPool) []string {
	there := PoolsFor(p, pools)
	return slices.DeleteFunc(slices.Clone(p.Pools), func(name string) bool { return slices.Contains(there, name) })
}

// SizeNote says why a tenant that has its first block for load balancers has fewer addresses than its spec.networking.lbPoolSize, "" where it has as many.
func SizeNote(t Tenant, p Policy, blocks []Block) string {
	var (
		has   int64
		first string
	)
	for _, b := range blocks {
		if b.Kind == v1alpha1.TypeLoadBalancer && !b.Deleting && !b.Failed {
			has += int64(b.size())
			if !b.Growth && first == "" {
				first = b.Name
			}
		}
	}
	if !p.IPAM || first == "" || has >= int64(t.LBPoolSize) {
		return ""
	}
	note := fmt.Sprintf("spec.networking.lbPoolSize is %d, and the tenant has %s for load balancers: ", t.LBPoolSize, allocator.Counted(has, "address"))
	switch {
	case has >= int64(p.MaxLoadBalancers):
		return note + fmt.Sprintf("the quota allows no more (quotaPerTenant.maxLoadBalancerIPs %d)", p.MaxLoadBalancers)
	case p.Elastic:
		return note + "lbPoolSize counts when the first block is made, and more are added as Services ask for them"
	}
	return note + fmt.Sprintf("lbPoolSize counted when IPAllocation %s was made; for more, create another IPAllocation of type loadbalancer for this TenantCluster", first)
}

// NetworkReady is the condition of a TenantCluster that says whether it has the addresses it starts with. wishes is what Missing
// answered to the same blocks; refusals is what the pools said to them, by kind.
func NetworkReady(p Policy, blocks []Block, wishes []Wish, refusals map[v1alpha1.IPAllocationType]Refusals) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionFalse}
	switch {
	case !p.IPAM:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, "the cloud provides the network"
		return c
	case len(p.Pools) == 0:
		c.Reason, c.Message = v1alpha1.ReasonNetworkNotReady, "the ProviderConfig names no NetworkPool: add one to spec.network.poolRefs"
		return c
	}
	for _, w := range wishes {
		switch refusal := refusals[w.Kind]; {
		case len(w.Tries) == 0:
			c.Reason = v1alpha1.ReasonPoolNotFound
			c.Message = fmt.Sprintf("no NetworkPool for %s exists: create %s", w.Kind, strings.Join(p.Pools, " or "))
			return c
		case len(refusal) > 0:
			absent := slices.DeleteFunc(slices.Clone(p.Pools), func(name string) bool {
				return slices.ContainsFunc(w.Tries, func(try Try) bool { return try.Pool == name })
			})
			c.Reason, c.Message = v1alpha1.ReasonPoolExhausted, fmt.Sprintf("no pool has room for %s: %s", w.Kind, refusal.String(absent...))
			return c
		}
	}
	if len(wishes) > 0 {
		c.Reason, c.Message = v1alpha1.ReasonReconciling, fmt.Sprintf("addresses for %s are being allocated", wishes[0].Kind)
		return c
	}
	var ready []string
	for _, b := range blocks {
		switch {
		case b.Growth:
		case b.Failed:
			c.Reason, c.Message = v1alpha1.ReasonAllocationFailed, fmt.Sprintf("IPAllocation %s has failed: see its condition Ready, correct or delete it", b.Name)
			return c
		case !b.usable():
			c.Reason, c.Message = v1alpha1.ReasonReconciling, fmt.Sprintf("IPAllocation %s is not ready yet", b.Name)
			return c
		default:
			ready = append(ready, fmt.Sprintf("%s %s", b.Kind, b.Range.Text()))
		}
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, "no addresses are needed to begin with"
	if len(ready) > 0 {
		c.Message = strings.Join(ready, ", ")
	}
	return c
}

// Capacity is how much the NetworkPools of a policy have left, and for how many more tenants: those with ingress and without numbers of
// their own. It is an estimate, since it does not look at how the free addresses lie, or in which pool. pools is those that exist, by name.
func Capacity(p Policy, pools map[string]*v1alpha1.NetworkPool) (v1alpha1.ProviderCapacity, metav1.Condition) {
	var available int64
	var size int64
	names := PoolsFor(p, pools)
	for i, name := range names {
		if i == 0 {
			size = int64(min(p.lbIn(Tenant{Ingress: true}, pools[name]), p.MaxLoadBalancers))
		}
		if i == 0 && p.Nodes {
			size += int64(p.nodesIn(pools[name]))
		}
		available += min(pools[name].Status.AvailableIPs, math.MaxInt64-available)
	}
	size = max(size, 1)
	capacity := v1alpha1.ProviderCapacity{AvailableIPs: saturated(available), EstimatedTenants: saturated(available / size)}
	c := metav1.Condition{Type: v1alpha1.ConditionPoolAvailable, Status: metav1.ConditionFalse}
	switch {
	case len(p.Pools) == 0:
		c.Reason, c.Message = v1alpha1.ReasonValidationFailed, "no NetworkPool is named: add one to spec.network.poolRefs"
	case len(names) == 0:
		c.Reason, c.Message = v1alpha1.ReasonPoolNotFound, fmt.Sprintf("none of the NetworkPools of the ProviderConfig exists: create %s", strings.Join(p.Pools, " or "))
	case available == 0:
		c.Reason, c.Message = v1alpha1.ReasonPoolExhausted, "no address is free: grow a NetworkPool, or add another to spec.network.poolRefs"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonPoolAvailable
		c.Message = fmt.Sprintf("%s, ~%s", allocator.Counted(available, "IP"), allocator.Counted(available/size, "tenant"))
		if available == math.MaxInt64 {
			c.Message = "2^63 IPs or more, for as many tenants as there will be"
		}
	}
	return capacity, c
}
