package novaedge

import (
	"strings"
	"testing"

	"butlerlabs.dev/ipam/test/suite"
)

// A reference to a pool has no fields namespace and kind: kubectl reports such fields as
// unknown, for both kinds of claims with such a reference.
func TestProxyVIP_References(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	for name, object := range map[string]string{
		"ProxyVIP":     "apiVersion: novaedge.io/v1alpha1\nkind: ProxyVIP\nmetadata: {name: refers}\nspec: {mode: BGP, ports: [80], poolRef: {name: default, FIELD: other}}",
		"IPAllocation": "apiVersion: butler.butlerlabs.dev/v1alpha1\nkind: IPAllocation\nmetadata: {name: refers, namespace: " + ns + "}\nspec: {type: nodes, tenantClusterRef: {name: a, namespace: b}, poolRef: {name: default, FIELD: other}}",
	} {
		for _, field := range []string{"namespace", "kind"} {
			_, said, err := cluster.Kubectl(t.Context(), strings.Replace(object, "FIELD", field, 1), "create", "--dry-run=server", "-f", "-")
			if want := `unknown field "spec.poolRef.` + field + `"`; err == nil || !strings.Contains(said+err.Error(), want) {
				t.Errorf("%s: kubectl wrote %q, %v, want %s", name, said, err, want)
			}
		}
	}
}
