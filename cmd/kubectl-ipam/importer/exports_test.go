package importer_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/importer"
)

const (
	notUTF8 = `row 2 is not UTF-8: save the file as UTF-8, in Excel as "CSV UTF-8 (Comma delimited)"`
	noRows  = `the file has a header and no rows: export it again with its rows, or save it with LF or CRLF as line ends`
	asCSV   = `: save or export the addresses as CSV in UTF-8 (in Excel: File, Save As, "CSV UTF-8 (Comma delimited)") and import that file`
)

// exports maps the files in testdata/exports to their plan or to the error of Read. The
// files have the columns, encodings, separators and line ends with which other tools and
// spreadsheets write addresses. The tenants "Acme Corp" and "acme" are those of the file.
var exports = map[string]struct {
	format string
	want   []string
	err    string
}{
	"bluecat-addresses.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.5/32 [2] ""`,
		`reserved 10.40.1.7/32 [4] ""`,
		`not in use [3] free addresses: the file says "UNALLOCATED"`,
	}},
	"excel-mac-csv-macintosh-german.csv": {err: notUTF8},
	"excel-mac-csv-macintosh.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"excel-mac-csv-utf8.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.5/32 [2] "web-1; Büro Zürich"`,
		`reserved 10.40.1.7/32 [4] "gw"`,
		`not in use [3] free addresses: the file says "frei"`,
	}},
	"excel-mac-header-alone.csv": {err: noRows},
	"excel-mac-line-break-in-cell.csv": {format: `csv`, want: []string{
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 4]`,
	}},
	"excel-mac-utf16-text.txt": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"excel-windows-csv-ansi-german.csv": {err: notUTF8},
	"excel-windows-csv-ansi.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"excel-windows-csv-msdos-german.csv": {err: notUTF8},
	"excel-windows-csv-utf8-german.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.5/32 [2] "web-1; Büro Zürich"`,
		`reserved 10.40.1.7/32 [4] "gw"`,
		`not in use [3] free addresses: the file says "frei"`,
	}},
	"excel-windows-csv-utf8.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"excel-windows-formula-text-quoted.csv": {format: `csv`, want: []string{
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"excel-windows-formula-text.csv": {format: `csv`, want: []string{
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"excel-windows-sep.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.5/32 [3] "web-1; Büro Zürich"`,
		`reserved 10.40.1.7/32 [5] "gw"`,
		`not in use [4] free addresses: the file says "frei"`,
	}},
	"excel-windows-unicode-text.txt": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"excel-windows-workbook-97.xls": {err: `the file is an Excel workbook (.xls)` + asCSV},
	"excel-windows-workbook.xlsx":   {err: `the file is an Excel workbook (.xlsx)` + asCSV},
	"google-sheets.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"hand-comments.csv": {format: `csv`, want: []string{
		`IPAllocation vlan40-10-40-1-5 [10.40.1.5] team-1/web nodes [5]`,
		`IPAllocation vlan40-10-40-1-7 [10.40.1.7] team-1/web nodes [7]`,
	}},
	"hand-line-separators-in-part.csv": {err: `row 2 has the character U+2028 before "10.40.1.6": a row ends with LF or CRLF; replace the character`},
	"hand-line-separators.csv": {format: `csv`, want: []string{
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"hand-mixed-list.csv": {err: `row 2, column "IP": "10.40.1.2/24" has bits set after the prefix: write 10.40.1.0/24 for the network, 10.40.1.2 for the address; if the column has addresses, add --map "IP=address"`},
	"hand-vertical-tabs.csv": {format: `csv`, want: []string{
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"infoblox-dhcp.csv": {format: `Infoblox`, want: []string{
		`reserved 10.40.1.16/28 [8] "clients"`,
		`reserved 10.40.1.32/30 [10] "routers"`,
		`reserved 10.40.1.40/32 [13] "phone"`,
		`IPAllocation vlan40-10-40-1-5 [10.40.1.5] team-1/web nodes [6]`,
		`not in use [14] free addresses: the file says "FREE"`,
		`not in use [2 4] networks`,
		`0 present, 1 duplicates`,
	}},
	"infoblox-dns.csv": {format: `Infoblox`, want: []string{
		`reserved 10.40.1.7/32 [6] "old.example.com"`,
		`reserved 10.40.1.8/31 [9 11 12] "db.example.com; mail.example.com"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2]`,
		`not in use [14] objects "cnamerecord" without addresses`,
		`not in use [16] objects "mxrecord" without addresses`,
		`0 present, 4 duplicates`,
	}},
	"infoblox-headers-alone.csv": {err: noRows},
	"infoblox-import-action.csv": {format: `Infoblox`, want: []string{
		`IPAllocation vlan40-10-40-1-5 [10.40.1.5] team-1/web nodes [2]`,
		`IPAllocation vlan40-10-40-1-7 [10.40.1.7] team-1/web nodes [4]`,
		`not in use [3] rows that the file deletes (import-action)`,
	}},
	"infoblox-unknown-object.csv": {format: `Infoblox`, want: []string{
		`reserved 10.40.1.5/32 [2] ""`,
		`left out [4] objects "member", whose addresses in column "vip_address" have no known meaning: add --map "vip_address=address", or =ignore if they are not in use`,
	}},
	"libreoffice-latin1.csv": {err: notUTF8},
	"libreoffice-quoted.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.5/32 [2] "web-1; Büro \"Zürich\""`,
		`not in use [3] free addresses: the file says "frei"`,
	}},
	"libreoffice-utf16.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"libreoffice-utf8.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"libreoffice.ods": {err: `the file is an OpenDocument spreadsheet (.ods)` + asCSV},
	"micetro-addresses.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.5/32 [2] ""`,
		`reserved 10.40.1.7/32 [4] ""`,
		`not in use [3] free addresses: the file says "Free"`,
	}},
	"netbox-addresses-all-data.csv": {format: `NetBox addresses`, want: []string{
		`reserved 10.40.1.8/32 [5] ""`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team/acme-corp nodes [2 3]`,
		`IPAllocation vlan40-10-40-1-7 [10.40.1.7] team/acme-corp loadbalancer [4]`,
	}},
	"netbox-addresses-short.csv": {format: `NetBox addresses`, want: []string{
		`reserved 10.40.1.5/32 [2] "web"`,
		`reserved 10.40.1.6/32 [3] ""`,
	}},
	"netbox-addresses-vrf-id.csv": {format: `NetBox addresses`, want: []string{
		`IPAllocation vlan40-10-40-1-6 [10.40.1.6] team/acme nodes [3]`,
		`left out [2] the VRF "3": the pool is in the routing domain ""; if both are one network, add --vrf-map "3="`,
	}},
	"netbox-api.json": {err: `the file is JSON` + asCSV},
	"netbox-prefixes-all-data.csv": {format: `NetBox prefixes`, want: []string{
		`IPAllocation vlan40-10-40-2-0-to-10-40-2-15 [10.40.2.0-10.40.2.15] team/acme-corp nodes [4]`,
		`not in use [2 3] networks`,
	}},
	"netbox-ranges.csv": {format: `NetBox ranges`, want: []string{
		`reserved 10.40.1.20/31 [3] "DHCP"`,
		`IPAllocation vlan40-10-40-1-10-to-10-40-1-19 [10.40.1.10-10.40.1.19] team/acme-corp nodes [2]`,
	}},
	"numbers-mac.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"phpipam-addresses.csv": {format: `phpIPAM addresses`, want: []string{
		`reserved 10.40.1.1/32 [2] "gw; router"`,
		`reserved 10.40.1.2/31 [3 4] "ns1"`,
	}},
	"report-as-html.xls": {err: `the file is HTML or XML` + asCSV},
	"solarwinds-addresses.csv": {format: `SolarWinds addresses`, want: []string{
		`reserved 10.40.1.1/32 [2] "gw.example.com"`,
		`reserved 10.40.1.2/32 [3] "sw.example.com"`,
		`reserved 10.40.1.4/32 [5] "laptop"`,
		`not in use [4 6] free addresses: the file says "Available"`,
	}},
	"utf16-without-mark.csv": {format: `csv`, want: []string{
		`reserved 10.40.1.9/32 [4] "printer"`,
		`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3]`,
	}},
	"windows-dhcp-exclusions-powershell.csv": {format: `Windows ranges`, want: []string{
		`reserved 10.40.1.1/32 [2] ""`,
		`reserved 10.40.1.2/31 [2] ""`,
	}},
	"windows-dhcp-leases-console.txt": {format: `Windows addresses`, want: []string{
		`reserved 10.40.1.5/32 [2] "pc1.example.com"`,
		`reserved 10.40.1.7/32 [3] "printer.example.com; second floor"`,
	}},
	"windows-dhcp-leases-powershell.csv": {format: `Windows addresses`, want: []string{
		`reserved 10.40.1.5/32 [3] "pc1.example.com"`,
		`reserved 10.40.1.7/32 [5] "printer"`,
		`reserved 10.40.1.8/32 [6] "BAD_ADDRESS"`,
		`not in use [4] free addresses: the file says "Expired"`,
	}},
	"windows-ipam-addresses.csv": {format: `Windows addresses`, want: []string{
		`reserved 10.40.1.25/32 [2] "printer; second floor"`,
		`reserved 10.40.1.26/32 [3] ""`,
	}},
}

// Each file of another tool becomes the right objects, or an error says what to do.
func TestNewPlan_Exports(t *testing.T) {
	files, err := testdata.ReadDir("testdata/exports")
	if err != nil || len(files) != len(exports) || len(files) < 40 {
		t.Fatalf("%d files, and %d in the table: %v", len(files), len(exports), err)
	}
	for name, tc := range exports {
		t.Run(name, func(t *testing.T) {
			f, err := addressfile.Read(bytes.NewReader(open(t, "exports/"+name)), addressfile.Mapping{})
			if err != nil || tc.err != "" {
				if fmt.Sprint(err) != tc.err {
					t.Errorf("error:\n%v\nwant:\n%s", err, tc.err)
				}
				return
			}
			p := newPlan(t, newInventory(newNetworkPool()), networkPool, f, importer.Options{SlugTenants: true, TenantNamespace: "team"})
			if diff := cmp.Diff(tc.want, describe(p)); diff != "" || f.Format != tc.format {
				t.Errorf("format %q, want %q; plan (-want +got):\n%s", f.Format, tc.format, diff)
			}
		})
	}
}

// A list of addresses with prefix lengths and of ranges has a mapping.
func TestNewPlan_MixedList(t *testing.T) {
	f := read(t, open(t, "exports/hand-mixed-list.csv"), addressfile.Mapping{Columns: map[string]string{"IP": addressfile.FieldAddress, "Owner": addressfile.FieldTenant}})
	got := describe(newPlan(t, newInventory(newNetworkPool()), networkPool, f, importer.Options{}))
	if diff := cmp.Diff([]string{
		`reserved 10.40.1.2/32 [2] ""`, `reserved 10.40.1.10/31 [3] ""`, `reserved 10.40.1.12/30 [3 4] ""`, `IPAllocation vlan40-10-40-1-3 [10.40.1.3] team-1/web nodes [5]`,
	}, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}
