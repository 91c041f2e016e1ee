package addressfile_test

import (
	"slices"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator/inventory/exchange/addressfile"
)

// Read returns an error for a file or a row that it cannot read. The error names the row, the column, the value and the remedy.
func TestRead_Faults(t *testing.T) {
	cases := map[string]struct{ text, format, want string }{
		"no address":           {"range,tenant\n10.0.0.300,a/b\n", "", `row 2, column "range": "10.0.0.300" is not an IP address`},
		"host bits":            {"range\n10.40.1.5/24\n", "", `row 2, column "range": "10.40.1.5/24" has bits set after the prefix: write 10.40.1.0/24 for the network, 10.40.1.5 for the address`},
		"reversed":             {"start,end\n10.0.0.9,10.0.0.1\n", "", `row 2, column "end": range 10.0.0.9-10.0.0.1 is reversed, write the lower address first`},
		"empty cell":           {"range,tenant\n,a/b\n", "", `row 2 has no address: fill the cell or remove the row`},
		"too many cells":       {"range,description\n10.0.0.1,a,b\n", "", `row 2 has 3 cells, the header has 2: quote cells that contain the separator`},
		"open quotation mark":  {"range,description\n10.0.0.1,\"a\n", "", `row 2 cannot be read, at line 2, character 13: extraneous or missing " in quoted-field`},
		"IPv4 in IPv6":         {"range\n::ffff:10.0.0.1\n", "", `row 2, column "range": "::ffff:10.0.0.1": address ::ffff:10.0.0.1 is IPv4 written as IPv6, write 10.0.0.1`},
		"zone":                 {"range\nfe80::1%eth0\n", "", `row 2, column "range": "fe80::1%eth0": address fe80::1%eth0 has a zone, leave out "%eth0"`},
		"unknown columns":      {"a,b\n1,2\n", "", `row 1 has the columns "a", "b", which belong to no known format: name the field of a column with --map COLUMN=FIELD, as in --map "a=ranges"`},
		"other format":         {"section,ip\n1,2\n", "netbox", `row 1 has the columns "section", "ip", which do not belong to --format=netbox: name the field of a column with --map COLUMN=FIELD, as in --map "section=ranges"`},
		"not UTF-8":            {"range,description\n10.0.0.1,\xe9t\xe9\n", "", `row 2 is not UTF-8: save the file as UTF-8`},
		"kind":                 {"kind,ranges\nNetwork,10.0.0.1\n", "", `row 2, column "kind": "Network" is none of Reserved, IPAllocation, PreAllocation, IPClaim, IPAddressClaim, ProxyVIP`},
		"no header":            {"10.40.1.80;team-1/web\n10.40.1.81;team-1/web\n", "", `row 1 has the address "10.40.1.80": the file has no header; add a first line such as "ranges;tenant"`},
		"no header, one cell":  {"10.40.1.80\n10.40.1.81\n", "", `row 1 has the address "10.40.1.80": the file has no header; add a first line such as "ranges"`},
		"no header, network":   {"web,10.40.1.5/24,x,y\n", "csv", `row 1 has the address "10.40.1.5/24": the file has no header; add a first line such as "tenant,ranges,description,column4"`},
		"no header, NetBox":    {"10.40.1.5/24,,team-1/web\n", "netbox", `row 1 has the address "10.40.1.5/24": the file has no header; add a first line such as "ranges,tenant,description"`},
		"no header, blanks":    {"10.40.1.80 web\n", "", `row 1 has one cell, "10.40.1.80 web", with an address: the separator was not recognized and the file has no header; separate cells by commas, semicolons or tabs, and add a first line such as "ranges,tenant"`},
		"not separated":        {"Host|Owner\n10.40.1.80|web\n", "", `row 1 has one column, "Host|Owner", which belongs to no known format: if this is a whole line, the separator was not recognized: use a comma, a semicolon or a tab; if this is one heading, name its field with --map COLUMN=FIELD, as in --map "Host|Owner=ranges"`},
		"quoted line":          {"\"Host;Owner\"\n", "", `row 1 has one column, "Host;Owner", which belongs to no known format: if this is a whole line, the separator was not recognized: use a comma, a semicolon or a tab; if this is one heading, name its field with --map COLUMN=FIELD, as in --map "Host;Owner=ranges"`},
		"comment":              {"# pool.yaml\napiVersion: v1\n", "", `row 1 is a comment, "# pool.yaml": remove it, so that the first line is the header of a CSV file`},
		"heading for a shell":  {"#,$HOME's `a`,b\n", "", `row 1 has the columns "#", "$HOME's ` + "`a`" + `", "b", which belong to no known format: name the field of a column with --map COLUMN=FIELD, as in --map '$HOME'\''s ` + "`a`" + `=ranges'`},
		"long heading":         {strings.Repeat("x", 61) + ",y\n", "", `row 1 has the columns "` + strings.Repeat("x", 60) + `…", "y", which belong to no known format: name the field of a column with --map COLUMN=FIELD, as in --map "y=ranges"`},
		"Infoblox without":     {"header-network,address*\nfixedaddress,10.0.0.1\n", "", `row 2 is of the object "fixedaddress", for which the file has no row that begins with "header-fixedaddress"`},
		"long cell":            {"range,description\n10.0.0.1," + strings.Repeat("x", addressfile.MaxCell+1) + "\n", "", `row 2, column "2": has 16385 bytes, 16384 at most: a quotation mark may be missing`},
		"many columns":         {"range" + strings.Repeat(",x", addressfile.MaxColumns) + "\n", "", `row 1 has 513 cells, 512 at most`},
		"many rows":            {"range\n" + strings.Repeat("10.0.0.1\n", addressfile.MaxRows+1), "", `row 200002 is beyond 200000 rows: split the file`},
		"large file":           {strings.Repeat("x", addressfile.MaxBytes+1), "", `the file has more than 67108864 bytes: split it`},
		"empty":                {"\n\n", "", `the file has no rows`},
		"YAML of another kind": {"apiVersion: v1\nkind: List\n", "", `the file has apiVersion "v1" and kind "List": those of kubectl ipam export are "kubectl-ipam.butlerlabs.dev/v1" and "AddressList"`},
		"several faults":       {"range\nx\n10.0.0.1\ny\n", "", "2 rows cannot be read:\n  row 2, column \"range\": \"x\" is not an IP address\n  row 4, column \"range\": \"y\" is not an IP address"},
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

// Read lists the columns that have content and no meaning.
func TestRead_Ignored(t *testing.T) {
	cases := map[string]struct {
		text    string
		columns map[string]string
		ignored []string
		example string
	}{
		"owners":            {text: "IP;Who\n10.40.1.1;jane\n10.40.1.2;\n", ignored: []string{"Who"}, example: "Who"},
		"without content":   {text: "IP;Who\n10.40.1.1;\n10.40.1.2; \n"},
		"mapped":            {text: "IP;Who\n10.40.1.1;a/b\n", columns: map[string]string{"who": "tenant"}},
		"ignored by name":   {text: "IP;Who\n10.40.1.1;a/b\n", columns: map[string]string{"Who": "ignore"}},
		"replaced":          {text: "IP;tenant;Who\n10.40.1.1;a/b;c/d\n", columns: map[string]string{"Who": "tenant"}},
		"without heading":   {text: "IP;;Who\n10.40.1.1;x;y\n", ignored: []string{"column 2", "Who"}, example: "Who"},
		"NetBox":            {text: "id,address,vrf,tenant,dns_name,created\n7,10.40.1.1/24,,a/b,,2026-01-01\n", ignored: []string{"id", "created"}, example: "id"},
		"Infoblox":          {text: "header-fixedaddress,ip_address*,mac_address\nfixedaddress,10.0.0.1,00:00:5e:00:53:05\nheader-dhcprange,start_address*,end_address*,mac_address\ndhcprange,10.0.0.2,10.0.0.3,x\n", ignored: []string{"mac_address"}, example: "mac_address"},
		"the tool's export": {text: "kind,name,ranges\nReserved,,10.40.1.1\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, err := addressfile.Read(strings.NewReader(tc.text), addressfile.Mapping{Columns: tc.columns})
			if err != nil || !slices.Equal(f.Ignored, tc.ignored) || f.Example != tc.example {
				t.Errorf("ignored %q, example %q, want %q, %q: %v", f.Ignored, f.Example, tc.ignored, tc.example, err)
			}
		})
	}
}
