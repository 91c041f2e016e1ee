package metal3

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// ResourceIPPool is the ledger.Key.Resource of an IPPool.
const ResourceIPPool = "ippools.ipam.metal3.io"

// IPPoolKey returns the key of an IPPool.
func IPPoolKey(namespace, name string) ledger.Key {
	return ledger.Key{Resource: ResourceIPPool, Namespace: namespace, Name: name}
}

// ConvertPool converts an IPPool for the ledger: Window is the offered ranges in order of
// use, Blocked is preAllocations. A pool with random allocation draws from source. The
// errors name the invalid fields; the valid fields count.
func ConvertPool(p *v1alpha1.IPPool, source *rand.Rand) (ledger.Pool, field.ErrorList) {
	parts, errs := ListOfferedRanges(p)
	kept, bad := parsePreAllocations(p)
	list := poolrecord.ReadList(p)
	pool := ledger.Pool{
		Key:               IPPoolKey(p.Namespace, p.Name),
		ResourceVersion:   object.ResourceVersion(p),
		RoutingDomain:     p.Labels[butlerv1.LabelRoutingDomain],
		Policy:            allocator.Sequential,
		Ordered:           true,
		MayBlockOwned:     true,
		Recorded:          list.Ranges,
		MovedListRevision: list.Revision,
		UID:               string(p.UID),
		Deleting:          p.DeletionTimestamp != nil,
		Cluster:           ptr.Deref(p.Spec.ClusterName, ""),
	}
	pool.ReuseDelay, _ = parseReuseDelay(p)
	if p.Spec.AllocationStrategy == v1alpha1.StrategyRandom {
		pool.Policy = allocator.Random(source)
	}
	for _, part := range parts {
		if part.IsValid() {
			pool.Window = append(pool.Window, part.Range)
		}
	}
	for _, pin := range kept {
		pool.Blocked = append(pool.Blocked, allocator.Range{First: pin.address, Last: pin.address})
	}
	pool.KeptFor = func(claim string) (r allocator.Range) {
		if a, _ := parsePreAllocation(p, claim); a.IsValid() {
			r = allocator.Range{First: a, Last: a}
		}
		return r
	}
	pool.WhatIsBlocked = func(allocator.Range) string { return "is kept for a claim (spec.preAllocations)" } // whose name is not told in other namespaces
	return pool, append(errs, bad...)
}

// parseReuseDelay returns the cooldown of a pool's released addresses; 0 if the
// annotation is invalid.
func parseReuseDelay(p *v1alpha1.IPPool) (time.Duration, *field.Error) {
	text, set := p.Annotations[butlerv1.AnnotationReuseDelay]
	if !set {
		return 0, nil
	}
	delay, err := time.ParseDuration(text)
	if err != nil || delay < 0 || delay > butlerv1.MaxReuseDelay {
		return 0, field.Invalid(field.NewPath("metadata", "annotations").Key(butlerv1.AnnotationReuseDelay), text, "must be a duration from 0s to 720h, such as 10m")
	}
	return delay, nil
}

// NewRandomSource returns an unpredictably seeded source.
func NewRandomSource() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }

// AddressName returns the name of the IPAddress object for an address of a pool:
// namePrefix, a dash, and the address with dashes for dots and colons. 192.168.0.13 of a
// pool with the prefix test1-prov is test1-prov-192-168-0-13. Two addresses can have the
// same name: 1.2.3.4 and 1:2:3:4::.
func AddressName(p *v1alpha1.IPPool, a netip.Addr) string {
	return strings.TrimRight(p.Spec.NamePrefix+"-"+strings.NewReplacer(".", "-", ":", "-").Replace(a.String()), "-")
}

// preAllocation is an entry of spec.preAllocations.
type preAllocation struct {
	claim   string
	address netip.Addr
}

func preAllocationPath(claim string) *field.Path {
	return field.NewPath("spec", "preAllocations").Key(claim)
}

// parsePreAllocation returns the address that a pool reserves for a claim; not valid for
// none. Field paths are built only for errors, as in parseEntry.
func parsePreAllocation(p *v1alpha1.IPPool, claim string) (netip.Addr, *field.Error) {
	value, kept := p.Spec.PreAllocations[claim]
	if !kept {
		return netip.Addr{}, nil
	}
	a, err := fieldtext.At(nil, string(value)).ParseAddress()
	if err != nil {
		err.Field = preAllocationPath(claim).String()
		return netip.Addr{}, err
	}
	return a, nil
}

// parsePreAllocations parses spec.preAllocations, sorted by the names of the claims.
func parsePreAllocations(p *v1alpha1.IPPool) ([]preAllocation, field.ErrorList) {
	var (
		pins []preAllocation
		errs field.ErrorList
	)
	for claim := range p.Spec.PreAllocations {
		if a, err := parsePreAllocation(p, claim); err != nil {
			errs = append(errs, err)
		} else {
			pins = append(pins, preAllocation{claim, a})
		}
	}
	slices.SortFunc(pins, func(x, y preAllocation) int { return strings.Compare(x.claim, y.claim) })
	slices.SortFunc(errs, func(x, y *field.Error) int { return strings.Compare(x.Field, y.Field) })
	return pins, errs
}
