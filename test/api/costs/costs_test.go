package costs

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// ruleBudget and crdBudget are what one rule and all rules of a CRD may cost by the API
// server's estimate: a tenth of its limits, because other versions estimate some
// functions higher. A rule that exceeds ruleBudget reads a string, list or map without a
// bound: give it MaxLength, MaxItems or MaxProperties.
const (
	ruleBudget = validation.StaticEstimatedCostLimit / 10
	crdBudget  = validation.StaticEstimatedCRDCostLimit / 10
)

func TestCostsOfRules(t *testing.T) {
	files, err := filepath.Glob("../../../config/*/*_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crds := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &v1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		crds++
		t.Run(crd.Name, func(t *testing.T) {
			v1.SetDefaults_CustomResourceDefinition(crd)
			v1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			internal := &apiextensions.CustomResourceDefinition{}
			if err := v1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
				t.Fatal(err)
			}
			for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
				if err.Field != "status.storedVersions" { // absent until the object is stored
					t.Errorf("the API server rejects the CRD: %v", err)
				}
			}
			schemas := []*apiextensions.CustomResourceValidation{internal.Spec.Validation}
			for _, version := range internal.Spec.Versions {
				schemas = append(schemas, version.Schema)
			}
			for _, schema := range schemas {
				if schema == nil {
					continue
				}
				total := checkRules(t, validation.RootCELContext(schema.OpenAPIV3Schema), schema.OpenAPIV3Schema, "")
				t.Logf("all rules: %d", total)
				if total > crdBudget {
					t.Errorf("all rules cost %d, more than %d", total, crdBudget)
				}
			}
		})
	}
	if crds != 10 {
		t.Errorf("found %d CRDs, want 10: eight in config/crd, two in config/tenants", crds)
	}
}

// checkRules fails for each rule at path and below that exceeds the budget, and returns
// the cost of all of them.
func checkRules(t *testing.T, context *validation.CELSchemaContext, schema *apiextensions.JSONSchemaProps, path string) uint64 {
	t.Helper()
	var total uint64
	if len(schema.XValidations) > 0 {
		types, err := context.TypeInfo()
		if err != nil {
			t.Fatal(err)
		}
		set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion(), true)
		results, err := cel.Compile(types.Schema, types.DeclType, celconfig.PerCallLimit, set, cel.NewExpressionsEnvLoader())
		if err != nil {
			t.Fatal(err)
		}
		for i, result := range results {
			times := result.MaxCardinality // how often a request of the maximum size has the field
			if context.MaxCardinality != nil {
				times = *context.MaxCardinality
			}
			for expression, cost := range map[string]uint64{
				schema.XValidations[i].Rule:              saturate(result.MaxCost, times),
				schema.XValidations[i].MessageExpression: saturate(result.MessageExpressionMaxCost, 1),
			} {
				if cost == 0 {
					continue
				}
				t.Logf("%s: %d: %s", path, cost, expression)
				if total += cost; cost > ruleBudget {
					t.Errorf("%s: costs %d, more than %d: %s", path, cost, ruleBudget, expression)
				}
			}
		}
	}
	for name, child := range schema.Properties {
		total += checkRules(t, context.ChildPropertyContext(&child, name), &child, path+"."+name)
	}
	if p := schema.AdditionalProperties; p != nil && p.Schema != nil {
		total += checkRules(t, context.ChildAdditionalPropertiesContext(p.Schema), p.Schema, path+".*")
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		total += checkRules(t, context.ChildItemsContext(schema.Items.Schema), schema.Items.Schema, path+"[]")
	}
	return total
}

// saturate returns cost * times, at most 2^53, so that sums do not overflow.
func saturate(cost, times uint64) uint64 {
	const most = 1 << 53
	if times != 0 && cost > most/times {
		return most
	}
	return cost * times
}
