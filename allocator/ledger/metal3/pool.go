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
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// KindIPPool is the ledger.Key.Kind of an IPPool.
const KindIPPool = "ippools.ipam.metal3.io"

// IPPoolKey names an IPPool.
func IPPoolKey(namespace, name string) ledger.Key {
	return ledger.Key{Kind: KindIPPool, Namespace: namespace, Name: name}
}

// PoolOf is what the ledger needs to know of a pool: as Window the parts that have addresses, in the order in which they are used up; as
// Blocked what preAllocations keeps. A pool that picks at random draws from source. The errors say what cannot be read; the rest counts.
func PoolOf(p *v1alpha1.IPPool, source *rand.Rand) (ledger.Pool, field.ErrorList) {
	parts, errs := PartsOf(p)
	kept, bad := readPins(p)
	resting := fields.Resting(p)
	pool := ledger.Pool{
		Key:             IPPoolKey(p.Namespace, p.Name),
		ResourceVersion: fields.ResourceVersion(p),
		Space:           p.Labels[butlerv1.LabelRoutingDomain],
		Policy:          allocator.Sequential,
		Ordered:         true,
		BlocksHeld:      true,
		Cooling:         resting.Ranges,
		Listed:          resting.Revision,
		UID:             string(p.UID),
		Deleting:        p.DeletionTimestamp != nil,
		Cluster:         ptr.Deref(p.Spec.ClusterName, ""),
	}
	pool.ReuseDelay, _ = reuseDelay(p)
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
	pool.Keeps = func(claim string) (r allocator.Range) {
		if a, _ := readPin(p, claim); a.IsValid() {
			r = allocator.Range{First: a, Last: a}
		}
		return r
	}
	pool.WhatIsBlocked = func(allocator.Range) string { return "is kept for a claim (spec.preAllocations)" } // whose name is not told in other namespaces
	return pool, append(errs, bad...)
}

// reuseDelay is how long a released address of a pool rests: not at all where that cannot be read.
func reuseDelay(p *v1alpha1.IPPool) (time.Duration, *field.Error) {
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

// NewSource is one to draw from that nobody can foresee.
func NewSource() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }

// AddressName is the name of the IPAddress object for an address of a pool: namePrefix, a dash, and the address with dashes for dots and
// colons. 192.168.0.13 of a pool with the prefix test1-prov is test1-prov-192-168-0-13. Two addresses can have one name: 1.2.3.4 and 1:2:3:4::.
func AddressName(p *v1alpha1.IPPool, a netip.Addr) string {
	return strings.TrimRight(p.Spec.NamePrefix+"-"+strings.NewReplacer(".", "-", ":", "-").Replace(a.String()), "-")
}

// pin is an entry of spec.preAllocations.
type pin struct {
	claim   string
	address netip.Addr
}

func pinPath(claim string) *field.Path { return field.NewPath("spec", "preAllocations").Key(claim) }

// readPin reads what a pool keeps for a claim, which is not valid where that is none. Paths are made for faults only, as for entries.
func readPin(p *v1alpha1.IPPool, claim string) (netip.Addr, *field.Error) {
	value, kept := p.Spec.PreAllocations[claim]
	if !kept {
		return netip.Addr{}, nil
	}
	a, err := fields.At(nil, string(value)).Address()
	if err != nil {
		err.Field = pinPath(claim).String()
		return netip.Addr{}, err
	}
	return a, nil
}

// readPins reads spec.preAllocations in the order of the claims' names.
func readPins(p *v1alpha1.IPPool) ([]pin, field.ErrorList) {
	var (
		pins []pin
		errs field.ErrorList
	)
	for claim := range p.Spec.PreAllocations {
		if a, err := readPin(p, claim); err != nil {
			errs = append(errs, err)
		} else {
			pins = append(pins, pin{claim, a})
		}
	}
	slices.SortFunc(pins, func(x, y pin) int { return strings.Compare(x.claim, y.claim) })
	slices.SortFunc(errs, func(x, y *field.Error) int { return strings.Compare(x.Field, y.Field) })
	return pins, errs
}
