package plugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/test/suite"
)

// k9sPlugin contains the fields of a plugin in the schema plugins.json of k9s.
type k9sPlugin struct {
	ShortCut        string   `json:"shortCut"`
	Override        bool     `json:"override,omitempty"`
	Description     string   `json:"description"`
	Confirm         bool     `json:"confirm,omitempty"`
	Dangerous       bool     `json:"dangerous,omitempty"`
	Scopes          []string `json:"scopes"`
	Command         string   `json:"command"`
	Background      bool     `json:"background,omitempty"`
	OverwriteOutput bool     `json:"overwriteOutput,omitempty"`
	Args            []string `json:"args,omitempty"`
}

// For each kind, the keys for k9s show the selected pool or claim.
func TestK9s_KeysRun(t *testing.T) {
	text, err := os.ReadFile("../../config/samples/k9s/plugins.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Plugins map[string]k9sPlugin `json:"plugins"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	// press runs the command of a key in the list of a resource, with the variables in
	// the arguments replaced as k9s replaces them.
	press := func(key, resource, namespace, name string) string {
		t.Helper()
		for id, plugin := range file.Plugins {
			if plugin.ShortCut != key || !slices.Contains(plugin.Scopes, resource) {
				continue
			}
			if plugin.Description == "" {
				t.Errorf("%s has no description", id)
			}
			replace := strings.NewReplacer("$CONTEXT", "sandbox", "$NAMESPACE", namespace, "$NAME", name)
			var args []string
			for _, arg := range plugin.Args {
				args = append(args, replace.Replace(arg))
			}
			command := exec.CommandContext(t.Context(), plugin.Command, args...)
			command.Env = append(append(os.Environ(), cluster.KubectlEnv()...), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "PAGER=cat")
			out, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", id, err, out)
			}
			return string(out)
		}
		t.Fatalf("no key %s in the list of %s", key, resource)
		return ""
	}
	for n, kind := range suite.Kinds {
		ns := suite.CreateNamespace(t, admin)
		pool, claim := kind.Pool(ns, "10.71.0.0", "10.71.0.31"), kind.Claim(ns, "selected", "")
		suite.CreateForTest(t, admin, pool)
		suite.CreateForTest(t, admin, claim)
		resource := []string{"networkpools", "ippools", "ippools", "networkpools", "proxyippools"}[n]
		if got := press("Shift-M", resource, ns, pool.GetName()); !strings.Contains(got, "1 claim") {
			t.Errorf("%s: the map is %q", kind.Name, got)
		}
		if got := press("Shift-W", kind.Resource, ns, claim.GetName()); !strings.Contains(got, kind.Address(claim)) || kind.Address(claim) == "" {
			t.Errorf("%s: who shows %q, not %s", kind.Name, got, kind.Address(claim))
		}
	}
}
