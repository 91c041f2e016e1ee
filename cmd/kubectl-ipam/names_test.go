package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// inventory.IsNamed accepts every name of a kind that kubectl accepts for the
// CustomResourceDefinition, and that kubectl get -o name prints.
func TestNames_OfCustomResourceDefinitions(t *testing.T) {
	files, err := filepath.Glob("../../config/crd/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !slices.Contains(inventory.Resources, crd.Name) || strings.HasPrefix(crd.Name, "ipaddresses.") { // address objects have no commands
			continue
		}
		tested++
		k := inventory.Key{Resource: crd.Name, Namespace: "team-b", Name: "web"}
		names := crd.Spec.Names
		for _, kind := range append(names.ShortNames, names.Kind, names.Plural, names.Singular, names.Singular+"."+crd.Spec.Group, names.Plural+".v1alpha1."+crd.Spec.Group) {
			if !inventory.IsNamed(k, kind+"/web") || !inventory.IsNamed(k, kind+"/team-b/web") || inventory.IsNamed(k, kind+"/other/web") || inventory.IsNamed(k, kind+"/other") {
				t.Errorf("%s: %s is not a name of the kind", crd.Name, kind)
			}
		}
		for _, kind := range []string{"", "web", names.Singular + ".example.com", names.Plural + "s"} {
			if inventory.IsNamed(k, kind+"/web") {
				t.Errorf("%s: %q is a name of the kind", crd.Name, kind)
			}
		}
	}
	if tested != 6 {
		t.Errorf("%d CustomResourceDefinitions, want 6: three of pools and three of claims", tested)
	}
}
