package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/importer"
)

// A run with unknown tenants writes them to the tenant map, keeps what a person has
// written there, and reads it in the next run.
func TestTenantMap_IsWrittenByTheFailingRun(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tenants.csv")
	run := func(flags map[string]string, unknown ...string) (map[string]string, error) {
		tenants := maps.Clone(flags)
		listed, err := readTenantMap(name, tenants)
		if err != nil {
			t.Fatal(err)
		}
		return tenants, explainTenants(fmt.Errorf("addresses.csv: %w", &importer.TenantError{Tenants: unknown, Faults: addressfile.Faults{{Row: 2, Text: "has the tenant"}}}), name, listed)
	}
	content := func(change ...string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(change) == 2 {
			text = []byte(strings.ReplaceAll(string(text), change[0], change[1]))
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return string(text)
	}
	tenants, err := run(map[string]string{}, "=Acme Corp", "Beta")
	if want := name + " has a row for each of 2 unknown tenants now: write namespace/name of the TenantCluster instead of NAMESPACE/…, and run the command again"; len(tenants) > 0 || err.Error() != want {
		t.Errorf("%v, %v, want %s", tenants, err, want)
	}
	if want := "tenant,namespace/name\n'=Acme Corp,NAMESPACE/acme-corp\nBeta,NAMESPACE/beta\n"; content() != want {
		t.Errorf("%q, want %q", content(), want)
	}
	before := content("NAMESPACE/acme", "team-1/acme")
	if tenants, err = run(map[string]string{}, "Beta"); tenants["=Acme Corp"] != "team-1/acme-corp" || len(tenants) != 1 || !strings.Contains(err.Error(), "1 row of "+name+" is not completed") || content() != before {
		t.Errorf("%v, %v", tenants, err)
	}
	if _, err = run(map[string]string{}, "Beta", "Gamma"); !strings.Contains(err.Error(), "2 unknown tenants now") || content() != before+"Gamma,NAMESPACE/gamma\n" {
		t.Errorf("%q: %v", content(), err)
	}
	if tenants, _ = run(map[string]string{"=Acme Corp": "other/acme"}, "Beta"); tenants["=Acme Corp"] != "other/acme" {
		t.Errorf("--tenant-map gives way to the file: %v", tenants)
	}
	if other := errors.New("another error"); !errors.Is(explainTenants(other, name, nil), other) {
		t.Error("another error is changed")
	}
	many := explainTenants(&importer.TenantError{Tenants: []string{"a", "b", "c"}}, "", nil)
	if !strings.Contains(many.Error(), "--tenant-map-file tenants.csv") || !strings.Contains(many.Error(), "--tenant-names slug") {
		t.Errorf("three tenants: %v", many)
	}
}
