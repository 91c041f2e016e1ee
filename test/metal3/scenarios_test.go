package metal3

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/scenarios"
)

const scenariosFile = "../../allocator/ledger/metal3/testdata/scenarios.yaml"

// storeEarlier stores the pools that today's rules refuse, before anybody serves those.
func storeEarlier(ctx context.Context) error {
	all, err := scenarios.Read(scenariosFile)
	if err != nil {
		return err
	}
	for i, tc := range all {
		if !tc.Stored {
			continue
		}
		for _, k := range bothKinds {
			ns := earlier(k, i)
			if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
				return err
			}
			if err := admin.Create(ctx, ipPool(ns, "pool", lowerCase(tc.Pool))); err != nil {
				return err
			}
		}
	}
	return nil
}

func earlier(k claimKind, i int) string {
	return fmt.Sprintf("earlier-%s-%d", strings.ToLower(k.name), i)
}

// lowerCase is a pool whose preAllocations are for names that objects can have.
func lowerCase(spec v1alpha1.IPPoolSpec) v1alpha1.IPPoolSpec {
	spec = *spec.DeepCopy()
	for name, a := range spec.PreAllocations {
		delete(spec.PreAllocations, name)
		spec.PreAllocations[strings.ToLower(name)] = a
	}
	return spec
}

func TestScenarios(t *testing.T) {
	all, err := scenarios.Read(scenariosFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range bothKinds {
		for i, tc := range all {
			t.Run(k.name+"/"+tc.Name, func(t *testing.T) {
				ns := earlier(k, i)
				if !tc.Stored {
					ns = namespace(t)
					create(t, ipPool(ns, "pool", lowerCase(tc.Pool)))
				}
				k.play(t, ns, tc)
			})
		}
	}
}

func (k claimKind) play(t *testing.T, ns string, tc scenarios.Scenario) {
	for i, a := range tc.Held {
		name := fmt.Sprintf("held-%d", i)
		create(t, k.holds(ns, name, "pool", name, a.String()))
	}
	claims := map[string]client.Object{}
	for _, step := range tc.Steps {
		name := strings.ToLower(step.Claim + step.Retry + step.Release)
		switch {
		case step.Release != "":
			gone(t, claims[name])
			continue
		case step.Claim != "":
			claims[name] = k.claim(ns, name, "pool", step.IPAddress)
			err := admin.Create(t.Context(), claims[name])
			if step.Error != "" && err != nil { // one that names its address is refused, as Metal3 would fail it
				if !strings.Contains(err.Error(), step.Error) {
					t.Errorf("claim %s: want %q, got: %v", name, step.Error, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if step.Error != "" {
			k.fails(t, claims[name], step.Error)
			continue
		}
		if step.Claim != "" && answer(claims[name]) == "" {
			t.Errorf("claim %s got no answer to its creation", name)
		}
		spec := k.bound(t, claims[name])
		if step.Claim != "" && answer(claims[name]) != string(spec.Address) {
			t.Errorf("claim %s was promised %s and has %s", name, answer(claims[name]), spec.Address)
		}
		object, _ := k.address(stored(t, claims[name]))
		got := scenarios.Answer{Address: netip.MustParseAddr(string(spec.Address)), Prefix: spec.Prefix, Gateway: spec.Gateway, DNSServers: spec.DNSServers, Name: object}
		want := step.Want.Settle(got)
		if k.name == ipAddressClaims.name {
			want.DNSServers = nil // there is no field for them
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("claim %s (-want +got):\n%s", name, diff)
		}
	}
}

// The example of Metal3's own book: three entries, with a subnet that is written with an address in it, and a kept address.
func TestTheProductsExampleGives210AddressesInOrder(t *testing.T) {
	ns := namespace(t)
	ip := func(s v1alpha1.IP) *v1alpha1.IP { return &s }
	subnet := func(s v1alpha1.Subnet) *v1alpha1.Subnet { return &s }
	first := between("192.168.0.10", "192.168.0.30")
	first.Prefix, first.Gateway = 25, ip("192.168.0.1")
	pool := ipPool(ns, "pool1", v1alpha1.IPPoolSpec{
		Pools:  []v1alpha1.Pool{first, {Subnet: subnet("192.168.1.1/26")}, {Subnet: subnet("192.168.1.128/25")}},
		Prefix: 24, Gateway: ip("192.168.1.1"), PreAllocations: map[string]v1alpha1.IP{"claim1": "192.168.0.12"}, NamePrefix: "test1-prov",
	})
	create(t, pool)
	becomes(t, pool, func(p *v1alpha1.IPPool) string {
		if p.Status.Capacity != nil && *p.Status.Capacity == 210 {
			return ""
		}
		return fmt.Sprintf("%+v", p.Status)
	})
	var want []string
	for _, part := range []struct {
		prefix      string
		first, last int
	}{{"192.168.0.", 10, 30}, {"192.168.1.", 2, 63}, {"192.168.1.", 129, 255}} {
		for i := part.first; i <= part.last; i++ {
			if a := fmt.Sprintf("%s%d", part.prefix, i); a != "192.168.0.12" {
				want = append(want, a)
			}
		}
	}
	var claims []client.Object
	var got []string
	for i := range want {
		c := ipClaims.claim(ns, fmt.Sprintf("any-%d", i), "pool1", "")
		create(t, c)
		claims, got = append(claims, c), append(got, answer(c))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	kept := ipClaims.claim(ns, "claim1", "pool1", "")
	create(t, kept)
	none := ipClaims.claim(ns, "none", "pool1", "")
	create(t, none)
	ipClaims.fails(t, none, "Exhausted IP Pools")
	for i, c := range append(claims, kept) {
		spec := ipClaims.bound(t, c)
		prefix, gateway := 24, v1alpha1.IP("192.168.1.1")
		if strings.HasPrefix(string(spec.Address), "192.168.0.") {
			prefix, gateway = 25, "192.168.0.1"
		}
		if spec.Prefix != prefix || *spec.Gateway != gateway {
			t.Errorf("%d: %s comes with /%d and %s, want /%d and %s", i, spec.Address, spec.Prefix, *spec.Gateway, prefix, gateway)
		}
	}
}
