package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/importer"
)

const namesSlug = "slug"

// tenantNames are the values of --tenant-names.
var tenantNames = []string{"exact", namesSlug}

// manyTenants is the number of unknown tenants from which the error of import names the
// flags for many tenants.
const manyTenants = 3

// readTenantMap reads the tenant map with a name, and adds its rows to tenants. A tenant
// of --tenant-map keeps its value. The result lists all rows of the file, also those that
// are not completed. A file that does not exist has no rows: explainTenants writes it.
func readTenantMap(name string, tenants map[string]string) (listed []addressfile.TenantPair, err error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--tenant-map-file: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	if listed, err = addressfile.ReadTenantMap(file); err != nil {
		return nil, fmt.Errorf("--tenant-map-file=%s: %w", name, err)
	}
	for _, pair := range listed {
		if _, given := tenants[pair.Tenant]; !given && pair.Name != "" && !strings.HasPrefix(pair.Name, addressfile.Placeholder+"/") {
			tenants[pair.Tenant] = pair.Name
		}
	}
	return listed, nil
}

// explainTenants adds the remedy for many tenants to an error of importer.NewPlan, and
// adds the tenants that the tenant map with a name lacks to this file.
func explainTenants(err error, name string, listed []addressfile.TenantPair) error {
	var unresolved *importer.TenantError
	switch {
	case !errors.As(err, &unresolved):
		return err
	case name == "" && len(unresolved.Tenants) < manyTenants:
		return err
	case name == "":
		return fmt.Errorf("%w\n%d tenants have no namespace/name: name all of them in a file, with --tenant-map-file tenants.csv, which this command writes as a form; or derive the names, with --tenant-names slug and --tenant-namespace", err, len(unresolved.Tenants))
	}
	missing := 0
	for _, tenant := range unresolved.Tenants {
		if !slices.ContainsFunc(listed, func(p addressfile.TenantPair) bool { return p.Tenant == tenant }) {
			listed = append(listed, addressfile.TenantPair{Tenant: tenant, Name: addressfile.Placeholder + "/" + addressfile.Slug(tenant)})
			missing++
		}
	}
	what := fmt.Sprintf("%s of %s %s not completed", allocator.Counted(len(unresolved.Tenants), "row"), name, allocator.Agree(len(unresolved.Tenants), "is", "are"))
	if missing > 0 {
		if err := writeTenantMap(name, listed); err != nil {
			return fmt.Errorf("--tenant-map-file: %w", err)
		}
		what = fmt.Sprintf("%s has a row for each of %s now", name, allocator.Counted(len(unresolved.Tenants), "unknown tenant"))
	}
	return fmt.Errorf("%s: write namespace/name of the TenantCluster instead of %s/…, and run the command again", what, addressfile.Placeholder)
}

// writeTenantMap writes a tenant map. A file with this name is complete at each time: the
// new file replaces it.
func writeTenantMap(name string, pairs []addressfile.TenantPair) error {
	var text strings.Builder
	if err := addressfile.WriteTenantMap(&text, pairs); err != nil {
		return err
	}
	part := name + ".part"
	if err := os.WriteFile(part, []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(part, name)
}
