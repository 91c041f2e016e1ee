package metal3

import (
	"strings"
	"testing"

	"butlerlabs.dev/ipam/test/suite"
)

// What of a reference does not count is said when the object is created: it is looked for
// in no other namespace, and under no other kind.
func TestClaim_ReferencesIgnoredInPart(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, ten(ns, "pool"))
	const (
		claim   = "apiVersion: ipam.metal3.io/v1alpha1\nkind: IPClaim\nmetadata: {name: NAME}\nspec: {pool: "
		address = "apiVersion: ipam.metal3.io/v1alpha1\nkind: IPAddress\nmetadata: {name: NAME}\nspec: {address: 10.0.0.9, claim: {name: later}, pool: "
		of      = "apiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddressClaim\nmetadata: {name: NAME}\nspec: {poolRef: "
	)
	for name, tc := range map[string]struct{ object, want string }{
		"whole": {claim + "{name: pool, namespace: " + ns + ", kind: IPPool, apiVersion: ipam.metal3.io/v1alpha1}}", ""},
		"elsewhere": {claim + "{name: pool, namespace: other}}",
			`spec.pool.namespace: "other" is ignored, and the IPPool "pool" of namespace ` + ns + ` is used: create this object in namespace other, or name an object of its own namespace`},
		"other-kind": {claim + "{name: pool, kind: NetworkPool}}", `spec.pool.kind: "NetworkPool" is ignored, and the IPPool "pool" is used: leave kind out or, for an address of another kind of pool, create an IPAddressClaim`},
		"other-group": {claim + "{name: pool, apiVersion: butler.butlerlabs.dev/v1alpha1}}",
			`spec.pool.apiVersion: "butler.butlerlabs.dev/v1alpha1" is ignored, and the IPPool "pool" of ipam.metal3.io is used: omit the field, or write ipam.metal3.io/v1alpha1`},
		"address": {address + "{name: pool, namespace: other}}", `spec.pool.namespace: "other" is ignored`},
		"unknown-kind": {of + "{name: pool, apiGroup: ipam.metal3.io, kind: NetworkPool}}",
			`spec.poolRef.kind: "NetworkPool" is no kind of pool in apiGroup ipam.metal3.io, whose pools are of kind IPPool: no address is assigned: write IPPool, or butler.butlerlabs.dev as apiGroup`},
		"unknown-kind-too": {of + "{name: pool, apiGroup: butler.butlerlabs.dev, kind: networkpool}}",
			`spec.poolRef.kind: "networkpool" is no kind of pool in apiGroup butler.butlerlabs.dev, whose pools are of kind NetworkPool: no address is assigned: write NetworkPool`},
		"others": {of + "{name: pool, apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			document := strings.Replace(tc.object, "NAME", name, 1)
			for _, run := range [][]string{{"create", "--dry-run=server"}, {"create"}, {"apply"}} {
				want := tc.want
				if run[0] == "apply" { // it is as it was
					want = ""
				}
				_, warned := suite.Kubectl(t, cluster, document, append(run, "-n", ns, "-f", "-")...)
				if want == "" && strings.Contains(warned, "spec.pool") || !strings.Contains(warned, want) {
					t.Errorf("kubectl %v wrote %q, want %q", run, warned, want)
				}
			}
		})
	}
	missing := "apiVersion: ipam.metal3.io/v1alpha1\nkind: IPClaim\nmetadata: {name: misses}\nspec: {pool: {name: there, namespace: other}}"
	suite.Kubectl(t, cluster, missing, "create", "-n", ns, "-f", "-")
	c := ipClaims.claim(ns, "misses", "there", "")
	toldOf(t, admin, stored(t, c), "WaitingForPool", `pool `+ns+`/there does not exist; spec.pool.namespace: "other" is ignored`)
}
