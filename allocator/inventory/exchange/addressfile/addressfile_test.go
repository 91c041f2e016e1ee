package addressfile_test

import (
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator/inventory/exchange/addressfile"
)

// Read returns an error for a file or a row that it cannot read. The error names the row, the column, the value and the remedy.
func TestRead_Faults(t *testing.T) {
	cases := map[string]struct{ text, format, want string }{
		"no address":           {"range,tenant\n10.0.0.300,a/b\n", "", `row 2, column "range": "10.0.0.300": "10.0.0.300" is not an IP address`},
		"host bits":            {"range\n10.40.1.5/24\n", "", `row 2, column "range": "10.40.1.5/24" has bits set after the prefix: write 10.40.1.0/24 for the network, 10.40.1.5 for the address`},
		"reversed":             {"start,end\n10.0.0.9,10.0.0.1\n", "", `row 2, column "end": range 10.0.0.9-10.0.0.1 is reversed, write the lower address first`},
		"empty cell":           {"range,tenant\n,a/b\n", "", `row 2 has no address: fill the cell or remove the row`},
		"too many cells":       {"range,description\n10.0.0.1,a,b\n", "", `row 2 has 3 cells, the header has 2: quote cells that contain the separator`},
		"open quotation mark":  {"range,description\n10.0.0.1,\"a\n", "", `row 2 cannot be read, at line 2, character 13: extraneous or missing " in quoted-field`},
		"IPv4 in IPv6":         {"range\n::ffff:10.0.0.1\n", "", `row 2, column "range": "::ffff:10.0.0.1": address ::ffff:10.0.0.1 is IPv4 written as IPv6, write 10.0.0.1`},
		"zone":                 {"range\nfe80::1%eth0\n", "", `row 2, column "range": "fe80::1%eth0": address fe80::1%eth0 has a zone, leave out "%eth0"`},
		"unknown columns":      {"a,b\n1,2\n", "", `row 1 has the columns "a", "b", which belong to no known format: name the field of a column with --map COLUMN=FIELD, as in --map a=ranges`},
		"other format":         {"section,ip\n1,2\n", "netbox", `row 1 has the columns "section", "ip", which do not belong to --format=netbox: name the field of a column with --map COLUMN=FIELD, as in --map section=ranges`},
		"not UTF-8":            {"range,description\n10.0.0.1,\xe9t\xe9\n", "", `row 2 is not UTF-8: save the file as UTF-8`},
		"kind":                 {"kind,ranges\nNetwork,10.0.0.1\n", "", `row 2, column "kind": "Network" is none of [Reserved IPAllocation PreAllocation IPClaim IPAddressClaim ProxyVIP]`},
		"Infoblox without":     {"header-network,address*\nfixedaddress,10.0.0.1\n", "", `row 2 is of the object "fixedaddress", for which the file has no row that begins with "header-fixedaddress"`},
		"long cell":            {"range,description\n10.0.0.1," + strings.Repeat("x", addressfile.MaxCell+1) + "\n", "", `row 2, column "2": has 16385 bytes, 16384 at most: a quotation mark may be missing`},
		"many columns":         {"range" + strings.Repeat(",x", addressfile.MaxColumns) + "\n", "", `row 1 has 513 cells, 512 at most`},
		"many rows":            {"range\n" + strings.Repeat("10.0.0.1\n", addressfile.MaxRows+1), "", `row 200002 is beyond 200000 rows: split the file`},
		"large file":           {strings.Repeat("x", addressfile.MaxBytes+1), "", `the file has more than 67108864 bytes: split it`},
		"empty":                {"\n\n", "", `the file has no rows`},
		"YAML of another kind": {"apiVersion: v1\nkind: List\n", "", `the file has apiVersion "v1" and kind "List": those of kubectl ipam export are "kubectl-ipam.butlerlabs.dev/v1" and "AddressList"`},
		"several faults":       {"range\nx\n10.0.0.1\ny\n", "", "2 rows cannot be read:\n  row 2, column \"range\": \"x\": \"x\" is not an IP address\n  row 4, column \"range\": \"y\": \"y\" is not an IP address"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := addressfile.Read(strings.NewReader(tc.text), addressfile.Mapping{Format: tc.format})
			if err == nil || err.Error() != tc.want {
				t.Errorf("error:\n%v\nwant:\n%s", err, tc.want)
			}
		})
	}
}
