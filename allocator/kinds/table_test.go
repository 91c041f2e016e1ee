package kinds_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator/kinds"
)

// notInTable lists the resources of config/crd that are no pools, claims or address
// objects.
var notInTable = []string{"allocationhistories.butler.butlerlabs.dev"}

// definition is the identity of a resource in a CustomResourceDefinition.
type definition struct {
	Kind          string
	ShortNames    []string
	ClusterScoped bool
	Versions      []string
}

// readDefinitions reads config/crd: resource -> definition.
func readDefinitions(t *testing.T) map[string]definition {
	t.Helper()
	files, err := filepath.Glob("../../config/crd/*_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("config/crd: %v, %v", files, err)
	}
	defined := map[string]definition{}
	for _, file := range files {
		var crd struct {
			Metadata struct{ Name string }
			Spec     struct {
				Names struct {
					Kind       string
					ShortNames []string
				}
				Scope    string
				Versions []struct{ Name string }
			}
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &crd)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		d := definition{Kind: crd.Spec.Names.Kind, ShortNames: crd.Spec.Names.ShortNames, ClusterScoped: crd.Spec.Scope == "Cluster"}
		for _, v := range crd.Spec.Versions {
			d.Versions = append(d.Versions, v.Name)
		}
		defined[crd.Metadata.Name] = d
	}
	return defined
}

func TestTable_HasEveryDefinition(t *testing.T) {
	for resource, want := range readDefinitions(t) {
		k := kinds.ForResource(resource)
		switch {
		case k == nil && !slices.Contains(notInTable, resource):
			t.Errorf("%s is in config/crd, and neither in the table nor in notInTable", resource)
		case k != nil:
			got := definition{k.Name, k.ShortNames, k.ClusterScoped, []string{k.Version}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-config/crd +table):\n%s", resource, diff)
			}
		}
	}
}

func TestTable_IsConsistent(t *testing.T) {
	resources, types := map[string]bool{}, map[reflect.Type]bool{}
	for _, k := range kinds.All {
		t.Run(k.Resource, func(t *testing.T) {
			o := k.New()
			if resources[k.Resource] || types[reflect.TypeOf(o)] {
				t.Errorf("the resource, or the Go type %T, is that of another kind", o)
			}
			resources[k.Resource], types[reflect.TypeOf(o)] = true, true
			if kinds.Of(o) != k || kinds.ForResource(k.Resource) != k {
				t.Errorf("the kind of %T is %v", o, kinds.Of(o))
			}
			if name := reflect.TypeOf(o).Elem().Name(); name != k.Name {
				t.Errorf("the Go type of %s is %s", k.Name, name)
			}
			plural, group, _ := strings.Cut(k.Resource, ".")
			if g := k.GroupVersionResource(); g.Resource != plural || g.Group != group || g.Version == "" {
				t.Errorf("the resource of the API is %v", g)
			}
			present := map[string]bool{
				"ConvertPool": k.ConvertPool != nil, "ValidatePoolUpdate": k.ValidatePoolUpdate != nil, "DescribePool": k.DescribePool != nil,
				"FormatExampleClaim": k.FormatExampleClaim != nil, "ConvertClaim": k.ConvertClaim != nil, "Describe": k.Describe != nil,
				"NewClaim": k.NewClaim != nil,
			}
			want := map[string]bool{
				"ConvertPool": k.IsPool(), "ValidatePoolUpdate": k.IsPool(), "DescribePool": k.IsPool(), "FormatExampleClaim": k.IsPool(),
				"ConvertClaim": !k.IsPool(), "Describe": !k.IsPool(), "NewClaim": !k.IsPool() && !k.IsAddressObject(),
			}
			if diff := cmp.Diff(want, present); diff != "" {
				t.Errorf("functions (-want +got):\n%s", diff)
			}
			if (len(k.Pools) == 0) != k.IsPool() {
				t.Errorf("the pools of the kind are %v", k.Pools)
			}
			for _, pools := range k.Pools {
				if p := kinds.ForResource(pools); p == nil || !p.IsPool() {
					t.Errorf("%s are no pools of the table", pools)
				}
			}
			if k.AddressObjects == "" {
				return
			}
			if a := kinds.ForResource(k.AddressObjects); a == nil || !slices.Equal(a.Pools, k.Pools) || a.ClusterScoped != k.ClusterScoped {
				t.Errorf("the address objects %s do not fit the claims", k.AddressObjects)
			}
		})
	}
}
