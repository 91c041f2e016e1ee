package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// MissingBlock is an initial block that a tenant lacks.
type MissingBlock struct {
	Kind       v1alpha1.IPAllocationType
	Candidates []Candidate // in order: the next when a pool has no room
	Replaces   string      // name of a failed block to delete first; "" if there is none

	Pinned   *v1alpha1.PinnedIPRange // the exact range to request; nil for any range
	Obstacle Obstacle                // why the block is not requested yet; empty if it is
	Retry    bool                    // the obstacle ends without an event of the tenant
}

// takesAny reports whether any free addresses of the candidates satisfy the block.
func (m MissingBlock) takesAny() bool {
	return m.Pinned == nil && m.Replaces == "" && m.Obstacle.Reason == ""
}

// TakesAny reports whether one of the missing blocks may get any free addresses.
func TakesAny(missing []MissingBlock) bool {
	return slices.ContainsFunc(missing, MissingBlock.takesAny)
}

// Delay returns missing blocks in which an obstacle delays the blocks that may get any
// free addresses of a pool for which isBusy reports a text, which completes "addresses
// for nodes are allocated when ".
func Delay(missing []MissingBlock, isBusy func(pool string) string) []MissingBlock {
	missing = slices.Clone(missing)
	for i := range missing {
		for _, candidate := range missing[i].Candidates {
			if until := isBusy(candidate.Pool); until != "" && missing[i].takesAny() {
				missing[i].Obstacle = Obstacle{v1alpha1.ReasonReconciling, fmt.Sprintf("addresses for %s are allocated when %s", missing[i].Kind, until)}
				missing[i].Retry = true
			}
		}
	}
	return missing
}

// ReplaceAfter is the age of a failure at which a block is replaced. Without a webhook, a
// block for which no pool has room is created and fails at once: without a pause the
// replacements would fail in a loop.
const ReplaceAfter = 10 * time.Second

// MissingBlocks returns the initial blocks that a tenant lacks: one for nodes and one for
// load balancers. pools are the NetworkPools by name. A block in any state counts as
// present, except a failed replaceable block. The replacement is requested from the next
// pool after the pool of the failed block.
//
// The block for load balancers is the tenant's ManualRange if a pool offers it, whatever
// size is configured: Services may use its addresses. A range beyond the quota is an
// obstacle, and no other addresses are allocated instead.
func MissingBlocks(t Tenant, p Policy, blocks []Block, pools map[string]*v1alpha1.NetworkPool) []MissingBlock {
	if !p.IPAM {
		return nil
	}
	var missing []MissingBlock
	if p.Nodes {
		if m, ok := missingBlockOf(v1alpha1.TypeNodes, p.Pools, blocks, pools, p.initialNodes); ok {
			missing = append(missing, m)
		}
	}
	room := p.MaxLoadBalancers - quotaUsed(blocks, v1alpha1.TypeLoadBalancer)
	if offering := poolsOffering(t.ManualRange, p, pools); len(offering) > 0 {
		size := saturate(t.ManualRange.Size())
		if m, ok := missingBlockOf(v1alpha1.TypeLoadBalancer, offering, blocks, pools, func(*v1alpha1.NetworkPool) int32 { return size }); ok {
			if m.Pinned = butler.FormatPinnedRange(t.ManualRange); size > room {
				m.Obstacle = Obstacle{v1alpha1.ReasonQuotaExceeded, fmt.Sprintf(
					"spec.networking.loadBalancerPool %s has %s, and the quota allows %d more (quotaPerTenant.maxLoadBalancerIPs %d): raise the quota, or shorten or remove the range",
					t.ManualRange, allocator.Counted(size, "address"), max(room, 0), p.MaxLoadBalancers)}
			}
			missing = append(missing, m)
		}
		return missing
	}
	if min(p.initialLoadBalancers(t, nil), room) < 1 {
		return missing
	}
	if m, ok := missingBlockOf(v1alpha1.TypeLoadBalancer, p.Pools, blocks, pools, func(pool *v1alpha1.NetworkPool) int32 {
		return min(p.initialLoadBalancers(t, pool), room)
	}); ok {
		missing = append(missing, m)
	}
	return missing
}

// missingBlockOf returns the missing block of a kind, to request from the pools in order;
// ok is false if the tenant has the block. countIn returns the number of addresses to
// request from a pool.
func missingBlockOf(
	kind v1alpha1.IPAllocationType, order []string, blocks []Block, pools map[string]*v1alpha1.NetworkPool, countIn func(*v1alpha1.NetworkPool) int32,
) (m MissingBlock, ok bool) {
	m.Kind = kind
	for _, b := range blocks {
		if b.Kind != kind || b.Growth {
			continue
		}
		if !b.Failed || !b.Replaceable {
			return MissingBlock{}, false
		}
		m.Replaces = b.Name
		if i := slices.Index(order, b.Pool); i >= 0 {
			order = slices.Concat(order[i+1:], order[:i+1])
		}
	}
	for _, name := range order {
		if pool := pools[name]; pool != nil && pool.DeletionTimestamp == nil {
			m.Candidates = append(m.Candidates, Candidate{name, countIn(pool)})
		}
	}
	return m, true
}

// Refusals are the last answers of pools without room, in the order of the requests.
type Refusals []Refusal

// Refusal is the answer of a pool without room.
type Refusal struct{ Pool, Message string }

// Add adds an answer, which replaces an earlier answer of the same pool.
func (r *Refusals) Add(pool, message string) {
	*r = append(slices.DeleteFunc(*r, func(o Refusal) bool { return o.Pool == pool }), Refusal{pool, message})
}

// maxRefusals bounds the pools that the message of a condition names.
const maxRefusals = 8

// String joins the answers, and names pools that could not be asked.
func (r Refusals) String(unusablePools ...string) string {
	var messages []string
	for _, refusal := range r {
		messages = append(messages, refusal.Message)
	}
	for _, name := range unusablePools {
		messages = append(messages, fmt.Sprintf("pool %s does not exist, or is being deleted", name))
	}
	if more := len(messages) - maxRefusals; more > 0 {
		messages = append(messages[:maxRefusals], allocator.Counted(more, "more pool"))
	}
	return strings.Join(messages, "; ")
}

// NetworkReadyCondition returns condition NetworkReady of a TenantCluster: whether the
// initial addresses are allocated. missing is the result of MissingBlocks for the same
// blocks; refusals are the answers of pools without room, by kind.
func NetworkReadyCondition(p Policy, blocks []Block, missing []MissingBlock, refusals map[v1alpha1.IPAllocationType]Refusals) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionFalse}
	switch {
	case !p.IPAM:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, "the cloud provides the network"
		return c
	case len(p.Pools) == 0:
		c.Reason, c.Message = v1alpha1.ReasonNetworkNotReady, "the ProviderConfig names no NetworkPool: add a NetworkPool to spec.network.poolRefs"
		return c
	}
	if c.Reason, c.Message = explainMissing(p, missing, refusals); c.Reason != "" {
		return c
	}
	var ranges []string
	for _, b := range blocks {
		switch {
		case b.Growth:
		case b.Failed:
			c.Reason, c.Message = v1alpha1.ReasonAllocationFailed, fmt.Sprintf("IPAllocation %s has failed: see its condition Ready, correct or delete it", b.Name)
			return c
		case !b.isUsable():
			c.Reason, c.Message = v1alpha1.ReasonReconciling, fmt.Sprintf("IPAllocation %s is not ready yet", b.Name)
			return c
		default:
			ranges = append(ranges, fmt.Sprintf("%s %s", b.Kind, b.Range.Text()))
		}
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, "the tenant needs no initial addresses"
	if len(ranges) > 0 {
		c.Message = strings.Join(ranges, ", ")
	}
	return c
}

// explainMissing returns reason and message for missing blocks; "" if none is missing.
func explainMissing(p Policy, missing []MissingBlock, refusals map[v1alpha1.IPAllocationType]Refusals) (reason, message string) {
	for _, m := range missing {
		switch refusal := refusals[m.Kind]; {
		case m.Obstacle.Reason != "":
			return m.Obstacle.Reason, m.Obstacle.Message
		case len(m.Candidates) == 0:
			return v1alpha1.ReasonPoolNotFound, fmt.Sprintf("no NetworkPool for %s exists: create %s", m.Kind, strings.Join(p.Pools, " or "))
		case len(refusal) > 0 && m.Pinned != nil:
			return v1alpha1.ReasonAddressConflict, fmt.Sprintf("spec.networking.loadBalancerPool is not allocated: %s; or correct or remove spec.networking.loadBalancerPool", refusal.String())
		case len(refusal) > 0:
			unusable := slices.DeleteFunc(slices.Clone(p.Pools), func(name string) bool {
				return slices.ContainsFunc(m.Candidates, func(c Candidate) bool { return c.Pool == name })
			})
			return v1alpha1.ReasonPoolExhausted, fmt.Sprintf("no pool has room for %s: %s", m.Kind, refusal.String(unusable...))
		}
	}
	if len(missing) > 0 {
		return v1alpha1.ReasonReconciling, fmt.Sprintf("addresses for %s are being allocated", missing[0].Kind)
	}
	return "", ""
}

// ExplainManualRange returns that a tenant with addresses for load balancers lacks
// addresses of spec.networking.loadBalancerPool; "" if it has them all, or names no
// range.
func ExplainManualRange(t Tenant, blocks []Block) string {
	var ranges []allocator.Range
	for _, b := range blocks {
		if b.Kind == v1alpha1.TypeLoadBalancer {
			ranges = append(ranges, b.Range)
		}
	}
	lacking := allocator.Subtract([]allocator.Range{t.ManualRange}, ranges)
	if len(lacking) == 0 || len(ranges) == 0 {
		return ""
	}
	return fmt.Sprintf("%s of spec.networking.loadBalancerPool, and not allocated to the tenant: the range is allocated with the first block for load balancers, where one NetworkPool "+
		"of the ProviderConfig offers the whole range to tenants", areOrIs(lacking))
}

// ExplainPoolSize returns why a tenant with an initial block for load balancers has fewer
// addresses than spec.networking.lbPoolSize; "" if the tenant has as many.
func ExplainPoolSize(t Tenant, p Policy, blocks []Block) string {
	var (
		addresses int64
		initial   string // name of the initial block
	)
	for _, b := range blocks {
		if b.Kind == v1alpha1.TypeLoadBalancer && !b.Deleting && !b.Failed {
			addresses += int64(b.addressCount())
			if !b.Growth && initial == "" {
				initial = b.Name
			}
		}
	}
	if !p.IPAM || initial == "" || addresses >= int64(t.LBPoolSize) {
		return ""
	}
	note := fmt.Sprintf("spec.networking.lbPoolSize is %d, and the tenant has %s for load balancers: ", t.LBPoolSize, allocator.Counted(addresses, "address"))
	switch {
	case addresses >= int64(p.MaxLoadBalancers):
		return note + fmt.Sprintf("the quota allows no more (quotaPerTenant.maxLoadBalancerIPs %d)", p.MaxLoadBalancers)
	case p.Elastic:
		return note + "lbPoolSize counts when the initial block is allocated, and more addresses are added as Services need them"
	}
	return note + fmt.Sprintf("lbPoolSize counted when IPAllocation %s was created; for more addresses, create another IPAllocation of type loadbalancer for this TenantCluster", initial)
}
