package metal3_test

import (
	"errors"
	"net/netip"
	"testing"

	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// poolWith reads a pool's spec in YAML.
func poolWith(t testing.TB, spec string) *v1alpha1.IPPool {
	t.Helper()
	p := &v1alpha1.IPPool{}
	p.Namespace, p.Name = "default", "pool1"
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	if p.Spec.NamePrefix == "" {
		p.Spec.NamePrefix = "test1-prov"
	}
	return p
}

// place is the addresses of a pool in the core, one core pool for each part.
type place struct {
	pool   *v1alpha1.IPPool
	space  *allocator.Space
	parts  []*allocator.Pool
	policy allocator.Policy
}

func newPlace(t testing.TB, p *v1alpha1.IPPool, owned ...netip.Addr) *place {
	t.Helper()
	known, errs := metal3.ConvertPool(p, random())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	pl := &place{pool: p, space: allocator.NewSpace(), policy: known.Policy}
	for _, part := range known.Window {
		pl.parts = append(pl.parts, pl.space.SetPool(part.String(), []allocator.Range{part}, known.Blocked))
	}
	for _, a := range owned {
		pl.space.Assign(single(a), 1)
	}
	return pl
}

// give is the address that a claim gets, which is owned from then on.
func (p *place) give(name, asked string) (netip.Addr, error) {
	want, err := metal3.BuildRequest(p.pool, name, asked)
	failure := annotated.Failure("")
	switch {
	case errors.As(err, &failure):
		return netip.Addr{}, failure
	case want.IgnorePoolBlocks:
		p.space.Assign(single(want.Address), 1)
		return want.Address, nil
	}
	for _, part := range p.parts {
		if want.Address.IsValid() {
			if err = part.AllocateExact(single(want.Address), 1); err == nil {
				return want.Address, nil
			}
			if owned := new(allocator.OwnedError); errors.As(err, &owned) {
				return netip.Addr{}, annotated.FailureUnavailable
			}
			continue
		}
		var r allocator.Range
		if r, err = part.Allocate(1, p.policy, 1); err == nil {
			return r.First, nil
		}
	}
	return netip.Addr{}, annotated.FailureExhausted
}

func single(a netip.Addr) allocator.Range { return allocator.Range{First: a, Last: a} }
