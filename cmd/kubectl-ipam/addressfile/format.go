package addressfile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"butlerlabs.dev/ipam/allocator"
)

// Formats are the values of Mapping.Format.
var Formats = []string{"auto", "csv", "netbox", "phpipam", "infoblox", "solarwinds", "windows", "yaml"}

// Fields are the meanings of a column. Read ignores columns with FieldIgnore.
const (
	FieldKind        = "kind"        // a Kind
	FieldName        = "name"        // name of the claim
	FieldRanges      = "ranges"      // addresses, ranges and networks, separated by spaces or commas
	FieldAddress     = "address"     // addresses and ranges of them, separated by spaces or commas; a prefix length is the length of the network around the address
	FieldFirst       = "first"       // first address of a range
	FieldLast        = "last"        // last address of a range
	FieldNetwork     = "network"     // a network: the row is left out unless it has a tenant or the status "reserved"
	FieldTenant      = "tenant"      // namespace/name, or a name
	FieldType        = "type"        // nodes or loadbalancer
	FieldTeam        = "team"        // team of an IPAllocation
	FieldMode        = "mode"        // mode of a ProxyVIP
	FieldPorts       = "ports"       // ports of a ProxyVIP, separated by spaces or commas
	FieldDomain      = "domain"      // routing domain, or VRF
	FieldStatus      = "status"      // "reserved" marks reserved addresses; "container" marks networks, and freeStatuses free addresses: these are not imported
	FieldRole        = "role"        // role of an address in NetBox: the roles "vip" and "anycast" set the type loadbalancer
	FieldGateway     = "gateway"     // whether the address is a gateway
	FieldDescription = "description" // several columns may have this field
	FieldIgnore      = "ignore"

	fieldText    = "text"    // a description of kubectl ipam export, read without removal of blanks
	fieldAction  = "action"  // what an import into Infoblox does with the row: D deletes it
	fieldReverse = "reverse" // name of a PTR record: its address, if no other column has one
)

// FieldNames are the values of Mapping.Columns.
var FieldNames = []string{
	FieldKind, FieldName, FieldRanges, FieldAddress, FieldFirst, FieldLast, FieldNetwork, FieldTenant, FieldType, FieldTeam, FieldMode, FieldPorts, FieldDomain,
	FieldStatus, FieldRole, FieldGateway, FieldDescription, FieldIgnore,
}

// format describes the columns of a table. The headings in needs and fields are
// normalized (see normalize).
type format struct {
	title  string     // name in messages
	option string     // value of Mapping.Format
	needs  [][]string // a table has this format if it has at least one heading of each list
	fields map[string]string
	// prefixed demands an address with the prefix length of its network, such as
	// 10.40.1.5/24, in a column with FieldAddress: the headings are too common.
	prefixed bool
}

// exportTitle is the title of the format whose cells are guarded (safetext.GuardCell).
const exportTitle = "csv of kubectl ipam export"

// netBoxAddresses are the columns of addresses in NetBox. Related objects have the name
// of the field, or the name and a field of the object: vrf, vrf.name, vrf.id.
var netBoxAddresses = map[string]string{
	"address": FieldAddress, "ipaddress": FieldAddress, "vrf": FieldDomain, "vrfname": FieldDomain, "vrfrd": FieldDomain, "vrfid": FieldDomain,
	"tenant": FieldTenant, "tenantname": FieldTenant, "tenantslug": FieldTenant, "tenantid": FieldTenant, "status": FieldStatus, "role": FieldRole,
	"dnsname": FieldDescription, "description": FieldDescription,
}

// formats lists the known formats. detect returns the first format that fits.
var formats = []format{
	{title: exportTitle, option: "csv", needs: [][]string{{"kind"}, {"ranges"}}, fields: map[string]string{
		"kind": FieldKind, "name": FieldName, "ranges": FieldRanges, "tenant": FieldTenant, "type": FieldType, "team": FieldTeam, "mode": FieldMode, "ports": FieldPorts,
		"description": fieldText,
	}},
	{title: "phpIPAM addresses", option: "phpipam", needs: [][]string{{"ipaddress"}, {"hostname"}, {"section", "subnet", "mac", "owner", "ipstate"}}, fields: map[string]string{
		"ipaddress": FieldAddress, "vrf": FieldDomain, "hostname": FieldDescription, "description": FieldDescription, "tag": FieldStatus, "ipstate": FieldStatus,
		"gateway": FieldGateway, "customer": FieldTenant,
	}},
	{title: "Windows addresses", option: "windows", needs: [][]string{
		{"ipaddress", "clientipaddress"}, {"managedbyservice", "serviceinstance", "assignmenttype", "ipaddressstate", "addressstate", "devicename", "scopeid", "leaseexpiration", "uniqueid"},
	}, fields: map[string]string{
		"ipaddress": FieldAddress, "clientipaddress": FieldAddress, "ipaddressstate": FieldStatus, "addressstate": FieldStatus, "devicename": FieldDescription,
		"hostname": FieldDescription, "name": FieldDescription, "description": FieldDescription, "addressspace": FieldDomain,
	}},
	{title: "Windows ranges", option: "windows", needs: [][]string{{"startipaddress", "startrange"}, {"endipaddress", "endrange"}}, fields: map[string]string{
		"startipaddress": FieldFirst, "endipaddress": FieldLast, "startrange": FieldFirst, "endrange": FieldLast, "name": FieldDescription, "description": FieldDescription,
		"addressspace": FieldDomain,
	}},
	{title: "SolarWinds addresses", option: "solarwinds", needs: [][]string{
		{"ipaddress"}, {"status", "ipstatus"}, {"dhcpclientname", "dnsbackward", "sysname", "machinetype", "vendor", "lastsync", "responsetime", "leaseexpires", "allocpolicy", "skipscan"},
	}, fields: map[string]string{
		"ipaddress": FieldAddress, "status": FieldStatus, "ipstatus": FieldStatus, "hostname": FieldDescription, "dnsbackward": FieldDescription, "dhcpclientname": FieldDescription,
		"description": FieldDescription, "comments": FieldDescription,
	}},
	{title: "NetBox prefixes", option: "netbox", needs: [][]string{{"prefix"}, {"vrf", "vrfid", "vrfname", "vrfrd", "ispool", "pool", "scopetype", "vlan", "vlanid"}}, fields: map[string]string{
		"prefix": FieldNetwork, "vrf": FieldDomain, "vrfname": FieldDomain, "vrfrd": FieldDomain, "vrfid": FieldDomain, "tenant": FieldTenant, "tenantname": FieldTenant,
		"tenantslug": FieldTenant, "tenantid": FieldTenant, "status": FieldStatus, "description": FieldDescription,
	}},
	{title: "NetBox ranges", option: "netbox", needs: [][]string{{"startaddress"}, {"endaddress"}}, fields: map[string]string{
		"startaddress": FieldFirst, "endaddress": FieldLast, "vrf": FieldDomain, "vrfname": FieldDomain, "vrfrd": FieldDomain, "vrfid": FieldDomain, "tenant": FieldTenant,
		"tenantname": FieldTenant, "tenantslug": FieldTenant, "tenantid": FieldTenant, "status": FieldStatus, "description": FieldDescription,
	}},
	{title: "NetBox addresses", option: "netbox", needs: [][]string{
		{"address", "ipaddress"}, {"vrf", "vrfid", "vrfname", "vrfrd", "dnsname"}, {"tenant", "tenantid", "tenantname", "tenantslug", "status", "role", "dnsname"},
	}, fields: netBoxAddresses},
	{title: "NetBox addresses", option: "netbox", needs: [][]string{{"address", "ipaddress"}, {"status", "role", "vrf", "vrfid", "vrfname", "vrfrd"}}, fields: netBoxAddresses, prefixed: true},
	{title: "csv", option: "csv", fields: map[string]string{
		"kind": FieldKind, "name": FieldName, "ranges": FieldRanges, "range": FieldRanges, "address": FieldRanges, "addresses": FieldRanges, "ip": FieldRanges, "ips": FieldRanges,
		"ipaddress": FieldRanges, "ipaddresses": FieldRanges, "ipaddr": FieldRanges, "ipv4": FieldRanges, "ipv6": FieldRanges, "ipv4address": FieldRanges, "ipv6address": FieldRanges,
		"hostip": FieldRanges, "clientip": FieldRanges, "clientipaddress": FieldRanges, "iprange": FieldRanges, "addressrange": FieldRanges,
		"ipadresse": FieldRanges, "ipadressen": FieldRanges, "ipbereich": FieldRanges, "adresse": FieldRanges, "adresseip": FieldRanges, "direcciónip": FieldRanges, "indirizzoip": FieldRanges,
		"endereçoip": FieldRanges, "ipadres": FieldRanges, "ipadress": FieldRanges, "cidr": FieldRanges, "network": FieldRanges, "prefix": FieldRanges,
		"first": FieldFirst, "start": FieldFirst, "startaddress": FieldFirst, "startip": FieldFirst, "firstip": FieldFirst, "firstaddress": FieldFirst, "rangestart": FieldFirst,
		"startipaddress": FieldFirst, "firstipaddress": FieldFirst,
		"last": FieldLast, "end": FieldLast, "endaddress": FieldLast, "endip": FieldLast, "lastip": FieldLast, "lastaddress": FieldLast, "rangeend": FieldLast,
		"endipaddress": FieldLast, "lastipaddress": FieldLast,
		"tenant": FieldTenant, "type": FieldType, "team": FieldTeam, "mode": FieldMode, "ports": FieldPorts, "domain": FieldDomain, "routingdomain": FieldDomain, "vrf": FieldDomain,
		"status": FieldStatus, "state": FieldStatus, "ipstatus": FieldStatus, "ipstate": FieldStatus, "addressstatus": FieldStatus, "addressstate": FieldStatus, "ipaddressstatus": FieldStatus,
		"ipaddressstate": FieldStatus, "zustand": FieldStatus, "statut": FieldStatus, "estado": FieldStatus, "stato": FieldStatus,
		"description": FieldDescription, "comment": FieldDescription, "comments": FieldDescription, "hostname": FieldDescription, "dnsname": FieldDescription,
		"beschreibung": FieldDescription, "bemerkung": FieldDescription, "kommentar": FieldDescription,
	}},
}

// normalize returns the letters and digits of a heading in lower case: "ip_address*" and
// "IP Address" are equal after normalize.
func normalize(heading string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// column is a column of a table.
type column struct {
	heading string
	field   string // "" for a column without meaning
	noted   bool   // File.Ignored contains the heading
}

// hasAddresses reports whether the cells of a column are addresses, ranges or networks.
func (c *column) hasAddresses() bool {
	return slices.Contains([]string{FieldRanges, FieldAddress, FieldNetwork, FieldFirst, FieldLast}, c.field)
}

// networkHeadings are headings of columns that have the addresses of a row only if no
// other column has them. Otherwise they describe the addresses.
var networkHeadings = []string{"cidr", "network", "prefix"}

// columnsOf returns the columns of a table. A heading has the field of the mapping, else
// the field of the format.
func columnsOf(header line, fields map[string]string, mapped map[string]string) []column {
	columns := make([]column, len(header.cells))
	for n, heading := range header.cells {
		columns[n].heading = strings.TrimSpace(heading)
		field, ok := mapped[normalize(heading)]
		if !ok {
			field = fields[normalize(heading)]
		}
		columns[n].field = field
	}
	isNetwork := func(c column) bool { return slices.Contains(networkHeadings, normalize(c.heading)) }
	if slices.ContainsFunc(columns, func(c column) bool { return c.hasAddresses() && !isNetwork(c) }) { // the network around the addresses
		for n := range columns {
			if _, isMapped := mapped[normalize(columns[n].heading)]; columns[n].field == FieldRanges && isNetwork(columns[n]) && !isMapped {
				columns[n].field = ""
			}
		}
	}
	for n := range columns { // the number of an object in a database says less than its name
		if name, isID := strings.CutSuffix(normalize(columns[n].heading), "id"); isID && (name == "vrf" || name == "tenant") {
			if slices.ContainsFunc(columns, func(c column) bool {
				return c.field == columns[n].field && normalize(c.heading) != normalize(columns[n].heading)
			}) {
				columns[n].field = FieldIgnore
			}
		}
	}
	for n := range columns { // a mapped column replaces the column with an equal field of the format
		if columns[n].field == FieldDescription || columns[n].field == FieldAddress {
			continue
		}
		if _, isMapped := mapped[normalize(columns[n].heading)]; isMapped {
			continue
		}
		if slices.ContainsFunc(columns, func(c column) bool { _, ok := mapped[normalize(c.heading)]; return ok && c.field == columns[n].field }) {
			columns[n].field = FieldIgnore
		}
	}
	return columns
}

// hasAddresses reports whether a table with the columns contains addresses.
func hasAddresses(columns []column) bool {
	has := func(field string) bool {
		return slices.ContainsFunc(columns, func(c column) bool { return c.field == field })
	}
	return has(FieldRanges) || has(FieldAddress) || has(FieldNetwork) || has(FieldFirst) && has(FieldLast)
}

// detect returns the format and the columns of a table, derived from the header, which is
// the first line.
func detect(lines []line, option string, mapped map[string]string) (format, []column, error) {
	header, headings := lines[0], map[string]bool{}
	for _, heading := range header.cells {
		headings[normalize(heading)] = true
	}
	known := func(some []string) bool { return slices.ContainsFunc(some, func(h string) bool { return headings[h] }) }
	for _, f := range formats {
		needs := f.needs
		if option != "auto" { // the first heading distinguishes the tables of a format
			needs = needs[:min(1, len(needs))]
		}
		if option != "auto" && option != f.option || slices.ContainsFunc(needs, func(some []string) bool { return !known(some) }) {
			continue
		}
		if columns := columnsOf(header, f.fields, mapped); hasAddresses(columns) && (option != "auto" || !f.prefixed || hasPrefixes(lines[1:], columns)) {
			return f, columns, nil
		}
	}
	return format{}, nil, newFormatFault(header, option)
}

// hasPrefixes reports whether a column of addresses has one with the prefix length of its
// network that is not the network: 10.40.1.5/24.
func hasPrefixes(lines []line, columns []column) bool {
	for n, c := range columns {
		if c.field == FieldAddress && slices.ContainsFunc(lines, func(l line) bool {
			if n >= len(l.cells) {
				return false
			}
			p, err := netip.ParsePrefix(trimCell(l.cells[n]))
			return err == nil && p != p.Masked()
		}) {
			return true
		}
	}
	return false
}

// checkHeader returns a fault if a cell of the header is an address, a range or a
// network: then the file has no header, and the first row of data would be lost.
func checkHeader(header line, separator rune) error {
	if lost := findLostRow(header, nil); lost != nil {
		return *lost
	}
	headings, found, fields := make([]string, len(header.cells)), "", []string{FieldTenant, FieldDescription}
	for n, cell := range header.cells {
		switch ranges, _, err := parseRanges(cell); {
		case err == nil && len(ranges) > 0, isNetworkAddress(cell):
			headings[n] = FieldRanges
			if found == "" {
				found = strings.TrimSpace(cell)
			}
		case len(fields) > 0:
			headings[n], fields = fields[0], fields[1:]
		default:
			headings[n] = fmt.Sprintf("column%d", n+1)
		}
	}
	switch parts := strings.Fields(header.cells[0]); {
	case found != "":
		return Fault{Row: header.row, Text: fmt.Sprintf("has the address %q: the file has no header; add a first line such as %q", Shorten(found), strings.Join(headings, string(separator)))}
	case len(header.cells) == 1 && slices.ContainsFunc(parts, func(part string) bool { _, err := allocator.ParseRange(part); return err == nil }):
		return Fault{Row: header.row, Text: fmt.Sprintf("has one cell, %q, with an address: the separator was not recognized and the file has no header; separate cells by commas, semicolons or tabs, and add a first line such as %q",
			Shorten(header.cells[0]), FieldRanges+","+FieldTenant)}
	}
	return nil
}

// isNetworkAddress reports whether a cell is an address with a prefix length, such as
// 10.40.1.5/24.
func isNetworkAddress(cell string) bool {
	_, err := netip.ParsePrefix(strings.TrimSpace(cell))
	return err == nil
}

// newFormatFault returns the fault of a header that belongs to no format, with a remedy.
func newFormatFault(header line, option string) Fault {
	first := header.cells[0]
	if len(header.cells) == 1 {
		return Fault{Row: header.row, Text: fmt.Sprintf("has one column, %q, which belongs to no known format: if this is a whole line, the separator was not recognized: use a comma, a semicolon or a tab; if this is one heading, name its field%s",
			Shorten(first), suggestMapping(header))}
	}
	var named []string
	for _, heading := range header.cells {
		named = append(named, fmt.Sprintf("%q", Shorten(heading)))
		if len(named) == 12 {
			named = append(named, "…")
			break
		}
	}
	what := "belong to no known format"
	if option != "auto" {
		what = "do not belong to --format=" + option
	}
	return Fault{Row: header.row, Text: fmt.Sprintf("has the columns %s, which %s: name the field of a column%s", strings.Join(named, ", "), what, suggestMapping(header))}
}

// suggestMapping returns a flag that gives the first usable heading the field ranges.
func suggestMapping(header line) string {
	for _, heading := range header.cells {
		if isNameable(heading) {
			return " with --map COLUMN=FIELD, as in --map " + QuoteShell(Shorten(heading)+"="+FieldRanges)
		}
	}
	return " with --map COLUMN=FIELD"
}

// isNameable reports whether a message can contain a heading in a form that
// Mapping.Columns accepts for the heading.
func isNameable(heading string) bool {
	text := normalize(heading)
	return text != "" && text == normalize(Shorten(heading))
}

// QuoteShell returns a text as one argument for a POSIX shell, in double quotes unless
// the text contains a character with a meaning in double quotes.
func QuoteShell(text string) string {
	if strings.ContainsAny(text, "\"$`\\!") {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	return `"` + text + `"`
}

// Shorten returns a text of a file for a message: without line breaks, and at most 60
// characters.
func Shorten(text string) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > 60 {
		return string(runes[:60]) + "…"
	}
	return string(runes)
}
