package metal3

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// colored is a pool of ten addresses with a prefix and a gateway of its own.
func colored(ns, name, domain string, prefix int) *v1alpha1.IPPool {
	p := ten(ns, name)
	gateway := v1alpha1.IP(fmt.Sprintf("10.0.0.%d", prefix))
	p.Spec.Prefix, p.Spec.Gateway = prefix, &gateway
	p.Labels[butlerv1.LabelRoutingDomain] = domain
	return p
}

func TestAddressObject_OfAnotherPool(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name+"/in another routing domain", func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			red, blue := colored(ns, "red", ns+"-red", 24), colored(ns, "blue", ns+"-blue", 25)
			before, name := k.holds(ns, "manual", "red", "hostx", "10.0.0.5"), "blue-10-0-0-5"
			squatter := k.holds(ns, name, "red", "hosty", "10.0.0.6") // has the name that the claim's own object would get
			suite.Create(t, admin, red, blue, before, squatter)
			indexesBecome(t, red, map[string]v1alpha1.IP{"hostx": "10.0.0.5", "hosty": "10.0.0.6"}) // by then the managers have seen them
			free := k.claim(ns, "hosty", "blue", "")
			k.gets(t, free, "10.0.0.1")
			c := k.claim(ns, "hostx", "blue", "10.0.0.5")
			k.gets(t, c, "10.0.0.5")
			got := k.bound(t, c)
			if got.Prefix != 25 || got.Gateway == nil || *got.Gateway != "10.0.0.25" {
				t.Errorf("the claim of blue has prefix %d and gateway %v of red", got.Prefix, got.Gateway)
			}
			after := k.holds(ns, "after", "red", "hostx", "10.0.0.7") // made while the claim has its own
			suite.Create(t, admin, after)
			suite.Delete(t, admin, c)
			suite.Delete(t, admin, free)
			for _, o := range []client.Object{before, squatter, after} {
				if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.GetDeletionTimestamp() != nil {
					t.Errorf("the claim of blue took %s of red with it: %v", o.GetName(), err)
				}
			}
		})
		t.Run(k.name+"/in the same routing domain", func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			suite.Create(t, admin, colored(ns, "red", ns, 24), colored(ns, "blue", ns, 25))
			suite.Create(t, admin, k.holds(ns, "manual", "red", "hostx", "10.0.0.5"))
			suite.RequireDenied(t, admin.Create(t.Context(), k.claim(ns, "hostx", "blue", "10.0.0.5")), 403, "10.0.0.5", "is owned by ipaddresses/manual")
			c := k.claim(ns, "hostx", "blue", "10.0.0.6")
			k.gets(t, c, "10.0.0.6")
			suite.RequireDenied(t, admin.Create(t.Context(), k.holds(ns, "second", "red", "hostx", "10.0.0.6")), 403, "10.0.0.6", "hostx")
			suite.Create(t, admin, k.holds(ns, "own", "blue", "hostx", "10.0.0.6")) // which is the claim's
			suite.Delete(t, admin, c)
			if o := k.holds(ns, "own", "blue", "hostx", "10.0.0.6"); !apierrors.IsNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(o), o)) {
				t.Errorf("the object of the claim's own pool is still there")
			}
		})
	}
}

func TestAddressObject_OfAnotherKindOfPool(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	lab := &butlerv1.NetworkPool{Spec: butlerv1.NetworkPoolSpec{CIDR: "10.0.0.0/28", Gateway: "10.0.0.14", RoutingDomain: ns + "-lab"}}
	lab.Namespace, lab.Name = ns, "pool" // as the IPPool is called
	suite.Create(t, admin, lab, colored(ns, "pool", ns+"-metal", 24), ipAddressClaims.holds(ns, "manual", "pool", "hostx", "10.0.0.5"))
	c := ipAddressClaims.claim(ns, "hostx", "pool", "10.0.0.5").(*ipamv1.IPAddressClaim)
	c.Spec.PoolRef.APIGroup, c.Spec.PoolRef.Kind = butlerv1.GroupVersion.Group, "NetworkPool"
	ipAddressClaims.gets(t, c, "10.0.0.5")
	if got := ipAddressClaims.bound(t, c); got.Prefix != 28 || got.Gateway == nil || *got.Gateway != "10.0.0.14" {
		t.Errorf("the claim of the NetworkPool has prefix %d and gateway %v of the IPPool", got.Prefix, got.Gateway)
	}
}
