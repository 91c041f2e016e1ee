package addressfile_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
)

const (
	noRows = "the file has a header and no rows: export it again with its rows, or save it with LF or CRLF as line ends"
	asCSV  = `: save or export the addresses as CSV in UTF-8 (in Excel: File, Save As, "CSV UTF-8 (Comma delimited)") and import that file`
)

// Read returns an error for a file or a row that it cannot read. The error names the row,
// the column, the value and the remedy.
func TestRead_Faults(t *testing.T) {
	cases := map[string]struct{ text, format, want string }{
		"no address":           {"range,tenant\n10.0.0.300,a/b\n", "", `row 2, column "range": "10.0.0.300" is not an IP address`},
		"host bits":            {"range\n10.40.1.5/24\n", "", `row 2, column "range": "10.40.1.5/24" has bits set after the prefix: write 10.40.1.0/24 for the network, 10.40.1.5 for the address; if the column has addresses, add --map "range=address"`},
		"reversed":             {"start,end\n10.0.0.9,10.0.0.1\n", "", `row 2, column "end": range 10.0.0.9-10.0.0.1 is reversed, write the lower address first`},
		"empty cell":           {"range,tenant\n,a/b\n", "", `row 2 has no address: fill the cell or remove the row`},
		"too many cells":       {"range,description\n10.0.0.1,a,b\n", "", `row 2 has 3 cells, the header has 2: quote cells that contain the separator`},
		"open quotation mark":  {"range,description\n10.0.0.1,\"a\n", "", `row 2 cannot be read, at line 2, character 13: extraneous or missing " in quoted-field`},
		"IPv4 in IPv6":         {"range\n::ffff:10.0.0.1\n", "", `row 2, column "range": "::ffff:10.0.0.1": address ::ffff:10.0.0.1 is IPv4 written as IPv6, write 10.0.0.1`},
		"zone":                 {"range\nfe80::1%eth0\n", "", `row 2, column "range": "fe80::1%eth0": address fe80::1%eth0 has a zone, leave out "%eth0"`},
		"unknown columns":      {"a,b\n1,2\n", "", `row 1 has the columns "a", "b", which belong to no known format: name the field of a column with --map COLUMN=FIELD, as in --map "a=ranges"`},
		"other format":         {"section,ip\n1,2\n", "netbox", `row 1 has the columns "section", "ip", which do not belong to --format=netbox: name the field of a column with --map COLUMN=FIELD, as in --map "section=ranges"`},
		"not UTF-8":            {"range,description\n10.0.0.1,\xe9t\xe9\n", "", `row 2 is not UTF-8: save the file as UTF-8, in Excel as "CSV UTF-8 (Comma delimited)"`},
		"kind":                 {"kind,ranges\nNetwork,10.0.0.1\n", "", `row 2, column "kind": "Network" is none of Reserved, IPAllocation, PreAllocation, IPClaim, IPAddressClaim, ProxyVIP`},
		"no header":            {"10.40.1.80;team-1/web\n10.40.1.81;team-1/web\n", "", `row 1 has the address "10.40.1.80": the file has no header; add a first line such as "ranges;tenant"`},
		"no header, one cell":  {"10.40.1.80\n10.40.1.81\n", "", `row 1 has the address "10.40.1.80": the file has no header; add a first line such as "ranges"`},
		"no header, network":   {"web,10.40.1.5/24,x,y\n", "csv", `row 1 has the address "10.40.1.5/24": the file has no header; add a first line such as "tenant,ranges,description,column4"`},
		"no header, NetBox":    {"10.40.1.5/24,,team-1/web\n", "netbox", `row 1 has the address "10.40.1.5/24": the file has no header; add a first line such as "ranges,tenant,description"`},
		"no header, blanks":    {"10.40.1.80 web\n", "", `row 1 has one cell, "10.40.1.80 web", with an address: the separator was not recognized and the file has no header; separate cells by commas, semicolons or tabs, and add a first line such as "ranges,tenant"`},
		"not separated":        {"Host|Owner\n10.40.1.80|web\n", "", `row 1 has one column, "Host|Owner", which belongs to no known format: if this is a whole line, the separator was not recognized: use a comma, a semicolon or a tab; if this is one heading, name its field with --map COLUMN=FIELD, as in --map "Host|Owner=ranges"`},
		"quoted line":          {"\"Host;Owner\"\n", "", `row 1 has one column, "Host;Owner", which belongs to no known format: if this is a whole line, the separator was not recognized: use a comma, a semicolon or a tab; if this is one heading, name its field with --map COLUMN=FIELD, as in --map "Host;Owner=ranges"`},
		"YAML with a comment":  {"# pool.yaml\n---\napiVersion: v1\n", "", `the file has apiVersion "v1" and kind "": those of kubectl ipam export are "kubectl-ipam.butlerlabs.dev/v1" and "AddressList"`},
		"only comments":        {"# nothing\n#here\n", "", `the file has no rows`},
		"header alone":         {"range,tenant\n", "", noRows},
		"header alone, CR":     {"range,tenant\r", "", noRows},
		"header and comments":  {"range,tenant\n# 10.0.0.1\n#10.0.0.2,a/b\n", "", noRows},
		"NetBox, no rows":      {"address,vrf,tenant,status\n", "netbox", noRows},
		"Infoblox, no rows":    {"header-fixedaddress,ip_address*\nheader-hostrecord,fqdn*,addresses\n", "", noRows},
		"YAML without items":   {"apiVersion: kubectl-ipam.butlerlabs.dev/v1\nkind: AddressList\nitems: []\n", "", `the file has no items`},
		"lost row":             {"range,tenant,x\n10.0.0.1,a/b\u202810.0.0.2,c/d\n", "", `row 2 has the character U+2028 before "10.0.0.2": a row ends with LF or CRLF; replace the character`},
		"lost row, later cell": {"name,range,x,y\nweb,10.0.0.1,a\vdb,10.0.0.2\n", "", `row 2 has the character U+000B before "10.0.0.2": a row ends with LF or CRLF; replace the character`},
		"lost row, header":     {"range,tenant\v10.0.0.1,a/b\n10.0.0.2,c/d\n", "", `row 1 has the character U+000B before "10.0.0.1": a row ends with LF or CRLF; replace the character`},
		"NUL":                  {"range,tenant\n10.0.0.1,a\x00b\n", "", `row 2 has a NUL character: the file is no text, or is damaged; export it again as CSV in UTF-8`},
		"leading zeros":        {"range\n010.000.001.020\n", "", `row 2, column "range": "010.000.001.020" has leading zeros: write 10.0.1.20`},
		"workbook":             {"PK\x03\x04\x14\x00\x06\x00\x08\x00[Content_Types].xml", "", "the file is an Excel workbook (.xlsx)" + asCSV},
		"old workbook":         {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\x00", "", "the file is an Excel workbook (.xls)" + asCSV},
		"OpenDocument":         {"PK\x03\x04\x14\x00mimetypeapplication/vnd.oasis.opendocument.spreadsheet", "", "the file is an OpenDocument spreadsheet (.ods)" + asCSV},
		"gzip":                 {"\x1f\x8b\x08\x00", "", "the file is compressed by gzip" + asCSV},
		"JSON":                 {"[{\"address\": \"10.0.0.1\"}]", "", "the file is JSON" + asCSV},
		"HTML":                 {"\ufeff<table><tr><td>10.0.0.1</td></tr></table>", "", "the file is HTML or XML" + asCSV},
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

// describe returns the rows of a file, one per line.
func describe(f *addressfile.File) (lines []string) {
	for _, r := range f.Records {
		text := fmt.Sprintf("%d %v", r.Row, r.Ranges)
		if r.Mention {
			text += " mention"
		}
		if r.Singles {
			text += " joinable"
		}
		for _, more := range []string{r.Tenant, r.Description, r.NotInUse, r.LeftOut} {
			if more != "" {
				text += " | " + more
			}
		}
		lines = append(lines, text)
	}
	return lines
}

// Read reads the line ends, comments, notations of addresses and marks of spreadsheets
// that files of people have.
func TestRead_Notations(t *testing.T) {
	two := []string{"2 [10.0.0.1] joinable | a/b", "3 [10.0.0.2] joinable | c/d"}
	cases := map[string]struct {
		text string
		m    addressfile.Mapping
		want []string
	}{
		"CR":                       {text: "range,tenant\r10.0.0.1,a/b\r10.0.0.2,c/d", want: two},
		"CR at the end":            {text: "range,tenant\r10.0.0.1,a/b\r10.0.0.2,c/d\r", want: two},
		"vertical tabs":            {text: "range,tenant\v10.0.0.1,a/b\v10.0.0.2,c/d\n", want: two},
		"line separators":          {text: "range,tenant\u202810.0.0.1,a/b\u202810.0.0.2,c/d", want: two},
		"paragraph separators":     {text: "range,tenant\u202910.0.0.1,a/b\u202910.0.0.2,c/d", want: two},
		"next lines":               {text: "range,tenant\u008510.0.0.1,a/b\u008510.0.0.2,c/d\u0085", want: two},
		"form feeds":               {text: "range,tenant\f10.0.0.1,a/b\f10.0.0.2,c/d", want: two},
		"CR CR LF":                 {text: "range,tenant\r\r\n10.0.0.1,a/b\r\r\n", want: []string{"3 [10.0.0.1] joinable | a/b"}},
		"line separator in a text": {text: "range,description\n10.0.0.1,a\u2028b\n", want: []string{"2 [10.0.0.1] joinable | a\u2028b"}},
		"comments": {
			text: "# exported by a tool; \"2026\"\n# x, y\n\nrange,tenant\n# it's \"half\n10.0.0.1,a/b # kept\n#10.0.0.9,a/b\n10.0.0.2,c/d\n",
			want: []string{"6 [10.0.0.1] joinable | a/b # kept", "8 [10.0.0.2] joinable | c/d"},
		},
		"number sign in a name":   {text: "description,range\n#3 printer,10.0.0.1\n", want: []string{"2 [10.0.0.1] joinable | #3 printer"}},
		"number sign in a header": {text: "#IP,tenant\n10.0.0.1,a/b\n10.0.0.2,c/d\n", want: two},
		"number column":           {text: "#,IP,tenant\n1,10.0.0.1,a/b\n2,10.0.0.2,c/d\n", want: two},
		"comment in a cell":       {text: "range,description\n10.0.0.1,\"a\n# b\"\n10.0.0.2,c\n", want: []string{"2 [10.0.0.1] joinable | a\n# b", "4 [10.0.0.2] joinable | c"}},
		"formulas of Excel":       {text: "range;tenant\n=\"10.0.0.1\";=\"a/b\"\n\"=\"\"10.0.0.2\"\"\";c/d\n", want: two},
		"texts of Excel":          {text: "range;tenant\n'10.0.0.1;a/b\n'10.0.0.2;c/d\n", want: two},
		"invisible characters":    {text: "range,tenant\n\u00a010.0.0.1\u200b,a/b\u00a0\n\ufeff10.0.0.2,c/d\n", want: two},
		"ranges": {
			text: "range\n10.0.0.1 – 10.0.0.4\n10.0.0.5-8\n10.0.0.9/24 - 10.0.0.12/24\n10.0.0.13\u00a0−\u00a010.0.0.14\n",
			want: []string{"2 [10.0.0.1-10.0.0.4]", "3 [10.0.0.5-10.0.0.8]", "4 [10.0.0.9-10.0.0.12]", "5 [10.0.0.13-10.0.0.14]"},
		},
		"mixed list": {
			text: "Adresse;Notiz\n10.1.7.2/24;\n10.1.7.10 - 10.1.7.20;\n10.1.7.3;\n", m: addressfile.Mapping{Columns: map[string]string{"Adresse": "address"}},
			want: []string{"2 [10.1.7.2] joinable", "3 [10.1.7.10-10.1.7.20]", "4 [10.1.7.3] joinable"},
		},
		"UTF-16 without mark":             {text: utf16Text(binary.LittleEndian, "range,tenant\r\n10.0.0.1,a/b\r\n10.0.0.2,c/d\r\n"), want: two},
		"UTF-16 without mark, big endian": {text: utf16Text(binary.BigEndian, "range,tenant\r\n10.0.0.1,a/b\r\n10.0.0.2,c/d\r\n"), want: two},
		"German headings":                 {text: "IP-Adresse;Hostname;Status\n10.0.0.1;web;belegt\n10.0.0.2;;frei\n", want: []string{"2 [10.0.0.1] joinable | web", `3 [10.0.0.2] joinable | free addresses: the file says "frei"`}},
		"own export":                      {text: "kind,name,ranges,description\nReserved,,10.0.0.1,'=1+1\nReserved,,10.0.0.2,it's\n", want: []string{"2 [10.0.0.1] joinable | =1+1", "3 [10.0.0.2] joinable | it's"}},
		"another tool's apostrophe":       {text: "range,description\n10.0.0.1,'=1+1\n", want: []string{"2 [10.0.0.1] joinable | '=1+1"}},
		"short header of NetBox":          {text: "address,status,description\n10.0.0.1/24,active,web\n10.0.0.2/24,available,\n", want: []string{"2 [10.0.0.1] joinable | web", `3 [10.0.0.2] joinable | free addresses: the file says "available"`}},
		"networks with a status":          {text: "address,status,description\n10.0.0.0/30,active,web\n", want: []string{"2 [10.0.0.0-10.0.0.3] | web"}},
		"network of an address":           {text: "IP,Network,tenant\n10.0.0.1,10.0.0.0/24,a/b\n10.0.0.2,10.0.0.0/24,c/d\n", want: two},
		"dates":                           {text: "IP,From,To,tenant\n10.0.0.1,2026-01-01,,a/b\n10.0.0.2,,2026-01-01,c/d\n", want: two},
		"separator line with tab":         {text: "sep=\t\nrange\ttenant\n10.0.0.1\ta/b\n", want: []string{"3 [10.0.0.1] joinable | a/b"}},
		"quoted separator line":           {text: "\"sep=;\"\nrange;tenant\n10.0.0.1;a/b\n", want: []string{"3 [10.0.0.1] joinable | a/b"}},
		"JSON as YAML": {
			text: `{"apiVersion": "kubectl-ipam.butlerlabs.dev/v1", "kind": "AddressList", "items": [{"kind": "Reserved", "ranges": "10.0.0.1"}]}`, m: addressfile.Mapping{Format: "yaml"},
			want: []string{"1 [10.0.0.1] joinable"},
		},
		"objects of NetBox": {text: "address,vrf.id,vrf.name,tenant.slug\n10.0.0.1/24,3,red,acme\n", want: []string{"2 [10.0.0.1] joinable | acme"}},
		"objects of Infoblox": {
			text: "header-hostaddress,address*,parent*\nhostaddress,10.0.0.1,web.example.com\nheader-ptrrecord,fqdn*,dname*,address\nptrrecord,2.0.0.10.in-addr.arpa,db.example.com,\n" +
				"ptrrecord,1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa,v6.example.com,\nptrrecord,x.example.com,y,\n" +
				"header-lease,address,binding_state\nlease,10.0.0.3,ACTIVE\nlease,10.0.0.4,FREE\nheader-fixedaddress,import-action,ip_address*\nfixedaddress,D,10.0.0.5\nfixedaddress,D,\nfixedaddress,IO,10.0.0.6\n" +
				"header-cnamerecord,fqdn*,canonical_name*\ncnamerecord,a,b\nheader-member,host_name*,vip_address\nmember,m,10.0.0.7\nheader-reservedrange,start_address*,end_address*\nreservedrange,10.0.0.8,10.0.0.9\n",
			want: []string{
				"2 [10.0.0.1] mention joinable | web.example.com", "4 [10.0.0.2] mention joinable | db.example.com", "5 [2001:db8::1] mention joinable | v6.example.com",
				`6 [] mention joinable | y | objects "ptrrecord" without addresses`, "8 [10.0.0.3] mention joinable", `9 [10.0.0.4] mention joinable | free addresses: the file says "FREE"`,
				"11 [10.0.0.5] joinable | rows that the file deletes (import-action)", "12 [] joinable | rows that the file deletes (import-action)", "13 [10.0.0.6] joinable",
				`15 [] | objects "cnamerecord" without addresses`,
				`17 [] | objects "member", whose addresses in column "vip_address" have no known meaning: add --map "vip_address=address", or =ignore if they are not in use`,
				"19 [10.0.0.8-10.0.0.9]",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, err := addressfile.Read(strings.NewReader(tc.text), tc.m)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(f); !slices.Equal(got, tc.want) {
				t.Errorf("rows:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// utf16Text returns a text in UTF-16 without byte order mark.
func utf16Text(order binary.AppendByteOrder, text string) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		out = order.AppendUint16(out, unit)
	}
	return string(out)
}

// A tenant map is read as it was written, also after Excel has saved it, and cells are no
// formulas.
func TestTenantMap(t *testing.T) {
	pairs := []addressfile.TenantPair{{Tenant: "", Name: "team/rest"}, {Tenant: "=cmd|'/c calc'!A1", Name: "NAMESPACE/x"}, {Tenant: "Acme, Corp", Name: "team/acme"}, {Tenant: "Zürich", Name: ""}}
	var out strings.Builder
	if err := addressfile.WriteTenantMap(&out, pairs); err != nil || strings.Contains(out.String(), "\n=") {
		t.Fatalf("%q: %v", out.String(), err)
	}
	excel := "\ufeff" + strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(out.String(), ",", ";"), "Acme;", "Acme,"), "\n", "\r\n")
	for _, text := range []string{out.String(), excel, utf16Text(binary.LittleEndian, out.String())} {
		if got, err := addressfile.ReadTenantMap(strings.NewReader(text)); err != nil || !slices.Equal(got, pairs) {
			t.Errorf("%q: %q: %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"a,b\n":                                 `row 1 is no header of a tenant map: write "tenant,namespace/name"`,
		"tenant,namespace/name\nx,a/b\nx,c/d\n": `row 3 has the tenant "x" of row 2: remove one of them`,
	} {
		if _, err := addressfile.ReadTenantMap(strings.NewReader(text)); fmt.Sprint(err) != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestSlug(t *testing.T) {
	for text, want := range map[string]string{"Acme Corp.": "acme-corp", "  R&D / Zürich_2 ": "rd-zurich-2", "Straße": "strasse", "--a..b--": "a-b", "東京": "", "": ""} {
		if got := addressfile.Slug(text); got != want {
			t.Errorf("Slug(%q) = %q, want %q", text, got, want)
		}
	}
}
