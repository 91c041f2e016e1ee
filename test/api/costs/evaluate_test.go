package costs

import (
	"os"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Kubernetes 1.31 evaluates containsCIDR to false unless both networks have the same
// first address.
func TestNetworksInsideNetworks(t *testing.T) {
	text, err := os.ReadFile("../../../config/crd/butler.butlerlabs.dev_networkpools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &v1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		t.Fatal(err)
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	validator := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	pool := func(cidr string, reserved ...string) map[string]any {
		list := []any{}
		for _, r := range reserved {
			list = append(list, map[string]any{"cidr": r})
		}
		return map[string]any{"spec": map[string]any{"cidr": cidr, "reserved": list}}
	}
	cases := map[string]struct {
		old, updated map[string]any
		accepted     bool
	}{
		"reserved in the middle":   {updated: pool("10.40.0.0/16", "10.40.5.0/24", "10.40.255.255/32"), accepted: true},
		"reserved is all":          {updated: pool("10.40.0.0/16", "10.40.0.0/16"), accepted: true},
		"reserved is larger":       {updated: pool("10.40.0.0/16", "10.40.0.0/15")},
		"reserved is outside":      {updated: pool("10.40.0.0/16", "10.41.0.0/24")},
		"reserved of IPv6":         {updated: pool("2001:db8::/64", "2001:db8::5:0/112"), accepted: true},
		"reserved of other family": {updated: pool("10.40.0.0/16", "2001:db8::/112")},
		"grows downwards":          {old: pool("10.40.1.0/24"), updated: pool("10.40.0.0/23"), accepted: true},
		"stays with host bits":     {old: pool("10.40.0.5/24"), updated: pool("10.40.0.0/24"), accepted: true},
		"shrinks":                  {old: pool("10.40.0.0/23"), updated: pool("10.40.0.0/24")},
		"moves":                    {old: pool("10.40.0.0/24"), updated: pool("10.41.0.0/24")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var old any
			if tc.old != nil {
				old = tc.old
			}
			errs, _ := validator.Validate(t.Context(), nil, structural, tc.updated, old, celconfig.RuntimeCELCostBudget)
			if accepted := len(errs) == 0; accepted != tc.accepted {
				t.Errorf("accepted: %v: %v", accepted, errs)
			}
		})
	}
}
