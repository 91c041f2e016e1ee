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
	"butlerlabs.dev/ipam/test/suite"
)

const testdata = "../../allocator/kinds/metal3/testdata/"

// storeEarlier stores the pools that today's rules refuse, before anybody serves those.
func storeEarlier(ctx context.Context) error {
	all, err := scenarios.Read(testdata + "scenarios.yaml")
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

func TestScenarios_OfTheProduct(t *testing.T) {
	t.Parallel()
	all, err := scenarios.Read(testdata + "scenarios.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range bothKinds {
		for i, tc := range all {
			t.Run(k.name+"/"+tc.Name, func(t *testing.T) {
				t.Parallel()
				ns := earlier(k, i)
				if !tc.Stored {
					ns = suite.CreateNamespace(t, admin)
					suite.Create(t, admin, ipPool(ns, "pool", lowerCase(tc.Pool)))
				}
				k.play(t, ns, tc)
			})
		}
	}
}

func (k claimKind) play(t *testing.T, ns string, tc scenarios.Scenario) {
	for i, a := range tc.Owned {
		name := fmt.Sprintf("owned-%d", i)
		suite.Create(t, admin, k.holds(ns, name, "pool", name, a.String()))
	}
	claims := map[string]client.Object{}
	for _, step := range tc.Steps {
		name := strings.ToLower(step.Claim + step.Retry + step.Release)
		switch {
		case step.Release != "":
			suite.Delete(t, admin, claims[name])
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

func TestIPPool_ExampleOfTheProduct(t *testing.T) {
	t.Parallel()
	e, err := scenarios.ReadExample(testdata + "example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ns, wants := suite.CreateNamespace(t, admin), e.Answers()
	pool := ipPool(ns, "pool1", e.Pool)
	suite.Create(t, admin, clusterNamed(ns, *e.Pool.ClusterName, false), pool)
	suite.AwaitObject(t, admin, pool, func(p *v1alpha1.IPPool) string {
		if p.Status.Capacity != nil && *p.Status.Capacity == int64(len(wants)) && len(p.OwnerReferences) == 1 {
			return ""
		}
		return fmt.Sprintf("%+v, %+v", p.Status, p.OwnerReferences)
	})
	claim := ipClaims.claim(ns, e.Kept, "pool1", "")
	var claims []client.Object
	for i, want := range wants {
		suite.Create(t, admin, claim)
		if got := answer(claim); got != want.Address.String() {
			t.Fatalf("claim %s got %q, want %s", claim.GetName(), got, want.Address)
		}
		claims, claim = append(claims, claim), ipClaims.claim(ns, fmt.Sprintf("any-%d", i), "pool1", "")
	}
	suite.Create(t, admin, claim)
	ipClaims.fails(t, claim, "Exhausted IP Pools")
	for i, c := range claims {
		spec := ipClaims.bound(t, c)
		object, _ := ipClaims.address(stored(t, c))
		got := scenarios.Answer{Address: netip.MustParseAddr(string(spec.Address)), Prefix: spec.Prefix, Gateway: spec.Gateway, DNSServers: spec.DNSServers, Name: object}
		if diff := cmp.Diff(wants[i], got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("claim %s (-want +got):\n%s", c.GetName(), diff)
		}
	}
}
