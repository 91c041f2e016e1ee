package metal3

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

func TestAnAddressThatSomebodyElseMakesCountsFromItsCreation(t *testing.T) {
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			suite.Create(t, admin, ten(ns, "pool"))
			suite.Create(t, admin, k.holds(ns, "router", "pool", "no-such-claim", "10.0.0.1"))
			k.gets(t, k.claim(ns, "web", "pool", ""), "10.0.0.2")
			suite.Refused(t, admin.Create(t.Context(), k.claim(ns, "greedy", "pool", "10.0.0.1")), 403, "Requested IP not available")
			suite.Refused(t, admin.Create(t.Context(), k.holds(ns, "thief", "pool", "other", "10.0.0.2")), 403, "10.0.0.2", "web")
			suite.Create(t, admin, k.holds(ns, "outside", "pool", "elsewhere", "10.9.0.1")) // as Metal3 does
		})
	}
}

func TestAClaimGetsTheAddressThatIsThereForIt(t *testing.T) {
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.Namespace(t, admin)
			suite.Create(t, admin, ten(ns, "pool"))
			before := k.holds(ns, "manual", "pool", "web", "10.0.0.8")
			suite.Create(t, admin, before)
			c := k.claim(ns, "web", "pool", "")
			k.gets(t, c, "10.0.0.8")
			if name, _ := k.address(stored(t, c)); name != "manual" {
				t.Errorf("the claim names %s", name)
			}
			suite.Delete(t, admin, c)
			suite.Gone(t, admin, before)
		})
	}
}

func TestAnAddressThatIsTakenAwayComesBack(t *testing.T) {
	ns := suite.Namespace(t, admin)
	suite.Create(t, admin, ten(ns, "pool"))
	c := ipClaims.claim(ns, "web", "pool", "")
	ipClaims.gets(t, c, "10.0.0.1")
	a := &v1alpha1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool-10-0-0-1"}}
	was := stored(t, a).UID
	suite.Change(t, admin, a, func(a *v1alpha1.IPAddress) { a.Finalizers = nil })
	if err := client.IgnoreNotFound(admin.Delete(t.Context(), a)); err != nil {
		t.Fatal(err)
	}
	suite.Becomes(t, admin, a, func(a *v1alpha1.IPAddress) string {
		if a.UID != was {
			return ""
		}
		return "it is the old one"
	})
}
