package addressfile

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

// Kind is the meaning of a row: the kind of an object, or an entry of the pool.
type Kind string

const (
	KindReserved       Kind = "Reserved"       // an entry of spec.reserved of a NetworkPool
	KindIPAllocation   Kind = "IPAllocation"   // a claim of a NetworkPool
	KindPreAllocation  Kind = "PreAllocation"  // an entry of spec.preAllocations of an IPPool
	KindIPClaim        Kind = "IPClaim"        // a claim of an IPPool
	KindIPAddressClaim Kind = "IPAddressClaim" // a claim of an IPPool or a NetworkPool
	KindProxyVIP       Kind = "ProxyVIP"       // a claim of a ProxyIPPool
)

var allKinds = []Kind{KindReserved, KindIPAllocation, KindPreAllocation, KindIPClaim, KindIPAddressClaim, KindProxyVIP}

// JoinKinds returns kinds as a list with commas, for messages.
func JoinKinds(kinds []Kind) string {
	names := make([]string, len(kinds))
	for n, k := range kinds {
		names[n] = string(k)
	}
	return strings.Join(names, ", ")
}

// Record is the content of a row of a file.
type Record struct {
	Row         int
	Kind        Kind // "" if the row has no kind
	Name        string
	Ranges      []allocator.Range
	Singles     bool // Ranges are single addresses; consecutive addresses may become one range
	Tenant      string
	Type        string // "" if the row has no type
	Team        string
	Mode        string
	Ports       []string
	HasDomain   bool   // the file has a column with routing domains or VRFs
	Domain      string // routing domain or VRF; "" if the cell is empty
	Description string
	Reserved    bool   // the addresses are not for tenants: reserved, a gateway, or Edge
	Edge        string // "network" or "broadcast" if the row has the network or broadcast address of a network
	// Mention marks a row that shows that addresses are in use, and not for what: a DNS
	// record or a lease. Another row with the addresses has precedence.
	Mention  bool
	NotInUse string // why the row has no addresses in use: it describes a network, or the addresses are free; "" for other rows
	LeftOut  string // why the row is not imported although it can have addresses in use; "" for other rows
}

// Mapping selects the format of a file and the fields of columns.
type Mapping struct {
	Format  string            // an element of Formats; "" means auto
	Columns map[string]string // heading -> element of FieldNames; replaces the field that the format gives to the heading
}

// File is the content of a file.
type File struct {
	Format  string // title of the format, for messages
	Unit    string // unit of Record.Row: "row", or "item" for a YAML file
	Records []Record
	// Ignored lists the headings of columns that have content and no meaning: neither the
	// format nor the Mapping gives the column a field.
	Ignored []string
	// Example is an element of Ignored for an example of Mapping.Columns; "" if no
	// element fits a message.
	Example string
}

// Read reads a file. The error contains the faults of all rows: see Fault and Faults.
func Read(r io.Reader, m Mapping) (*File, error) {
	if m.Format == "" {
		m.Format = "auto"
	}
	if !slices.Contains(Formats, m.Format) {
		return nil, fmt.Errorf("format %q: use one of %s", m.Format, strings.Join(Formats, ", "))
	}
	mapped := map[string]string{}
	for heading, field := range m.Columns {
		if !slices.Contains(FieldNames, field) {
			return nil, fmt.Errorf("column %q: field %q is none of %s", heading, field, strings.Join(FieldNames, ", "))
		}
		mapped[normalize(heading)] = field
	}
	data, err := readText(r, m.Format == "yaml")
	if err != nil {
		return nil, err
	}
	if m.Format == "yaml" || m.Format == "auto" && yamlStart.Match(data) {
		return readYAML(data)
	}
	lines, err := readLines(data)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, errors.New("the file has no rows")
	}
	if m.Format == "infoblox" || m.Format == "auto" && strings.HasPrefix(strings.ToLower(lines[0].cells[0]), infobloxHeader) {
		return readInfoblox(lines, mapped)
	}
	if err := checkHeader(lines[0], findSeparator(data)); err != nil {
		return nil, err
	}
	return readTable(lines, m, mapped)
}

// yamlStart matches the start of a YAML document of kubectl ipam export, with comments
// before it.
var yamlStart = regexp.MustCompile(`^(\s*(#.*|---.*)?\n)*apiVersion:`)

// readTable reads a file with one header.
func readTable(lines []line, m Mapping, mapped map[string]string) (*File, error) {
	header := lines[0]
	for heading := range m.Columns {
		if !slices.ContainsFunc(header.cells, func(cell string) bool { return normalize(cell) == normalize(heading) }) {
			return nil, fmt.Errorf("the file has no column %q, which a mapping names", heading)
		}
	}
	f, columns, err := detect(lines, m.Format, mapped)
	if err != nil {
		return nil, err
	}
	file, faults := &File{Format: f.title, Unit: "row"}, Faults(nil)
	for _, l := range lines[1:] {
		if f.title == exportTitle {
			for n := range l.cells {
				l.cells[n] = safetext.UnguardCell(l.cells[n])
			}
		} else if lost := findLostRow(l, columns); lost != nil {
			faults = append(faults, *lost)
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(l.cells[0]), "#") && columns[0].hasAddresses() {
			continue // a comment that contains separators
		}
		record, bad := readRecord(l, columns)
		file.noteIgnored(l, columns)
		file.Records, faults = append(file.Records, record), append(faults, bad...)
	}
	switch {
	case len(faults) > 0:
		return nil, faults
	case len(file.Records) == 0:
		return nil, errNoRows
	}
	return file, nil
}

// noteIgnored adds the columns without meaning that have content in a row to
// file.Ignored.
func (f *File) noteIgnored(l line, columns []column) {
	for n, cell := range l.cells[:min(len(l.cells), len(columns))] {
		c := &columns[n]
		if c.field != "" || c.noted || strings.TrimSpace(cell) == "" {
			continue
		}
		c.noted = true
		heading := c.heading
		switch {
		case heading == "":
			heading = fmt.Sprintf("column %d", n+1)
		case f.Example == "" && isNameable(heading):
			f.Example = Shorten(heading)
		}
		if !slices.Contains(f.Ignored, heading) { // several tables of a file can have the heading
			f.Ignored = append(f.Ignored, heading)
		}
	}
}

// infobloxHeader is the prefix of the first cell of a header in an Infoblox file. The
// object of the table follows the prefix.
const infobloxHeader = "header-"

// readInfoblox reads a file with a header for each kind of object. The first cell of each
// row is the object.
func readInfoblox(lines []line, mapped map[string]string) (*File, error) {
	file, faults, tables := &File{Format: "Infoblox", Unit: "row"}, Faults(nil), map[string]infobloxTable{}
	for _, l := range lines {
		first := strings.ToLower(strings.TrimSpace(l.cells[0]))
		if object, isHeader := strings.CutPrefix(first, infobloxHeader); isHeader {
			l.cells = slices.Concat([]string{""}, l.cells[1:])
			tables[object] = newInfobloxTable(object, l, mapped)
			continue
		}
		table, known := tables[first]
		if !known {
			faults = append(faults, Fault{Row: l.row, Text: fmt.Sprintf("is of the object %q, for which the file has no row that begins with %q", Shorten(first), infobloxHeader+Shorten(first))})
			continue
		}
		l.cells = slices.Concat([]string{""}, l.cells[1:])
		record, bad := table.read(l)
		if record.NotInUse == "" && record.LeftOut == "" {
			file.noteIgnored(l, table.columns)
		}
		file.Records, faults = append(file.Records, record), append(faults, bad...)
	}
	switch {
	case len(faults) > 0:
		return nil, faults
	case len(file.Records) == 0:
		return nil, errNoRows
	}
	return file, nil
}

// notInUseNetworks is the reason in Record.NotInUse for rows that describe a network, but
// no addresses in use.
const notInUseNetworks = "networks"

// readYAML reads a Document.
func readYAML(data []byte) (*File, error) {
	var d Document
	if err := yaml.UnmarshalStrict(data, &d); err != nil {
		return nil, fmt.Errorf("the file is no YAML of kubectl ipam export: %w", err)
	}
	switch {
	case d.APIVersion != documentVersion || d.Kind != documentKind:
		return nil, fmt.Errorf("the file has apiVersion %q and kind %q: those of kubectl ipam export are %q and %q", Shorten(d.APIVersion), Shorten(d.Kind), documentVersion, documentKind)
	case len(d.Items) > MaxRows:
		return nil, fmt.Errorf("the file has %d items, %d at most: split the file", len(d.Items), MaxRows)
	}
	file, faults := &File{Format: "YAML of kubectl ipam export", Unit: "item"}, Faults(nil)
	columns := columnsOf(line{cells: entryColumns}, formats[0].fields, nil)
	for n, e := range d.Items {
		record, bad := readRecord(line{n + 1, e.cells()}, columns)
		file.Records, faults = append(file.Records, record), append(faults, bad...)
	}
	switch {
	case len(faults) > 0:
		return nil, faults
	case len(file.Records) == 0:
		return nil, errors.New("the file has no items")
	}
	return file, nil
}

// noAddress is the text of the fault of a row without addresses.
const noAddress = "has no address: fill the cell or remove the row"

// maxRanges bounds the ranges of a row.
const maxRanges = 1024

// readRecord reads a row.
func readRecord(l line, columns []column) (r Record, faults Faults) {
	r.Row, r.Singles = l.row, true
	if len(l.cells) > len(columns) && strings.TrimSpace(strings.Join(l.cells[len(columns):], "")) != "" {
		return r, Faults{{Row: l.row, Text: fmt.Sprintf("has %d cells, the header has %d: quote cells that contain the separator", len(l.cells), len(columns))}}
	}
	var first, last netip.Addr
	var lastHeading, status, reverse string
	var descriptions []string
	isNetwork, isDeleted, faulty := false, false, false
	for n, cell := range l.cells[:min(len(l.cells), len(columns))] {
		field, raw := columns[n].field, cell
		r.HasDomain = r.HasDomain || field == FieldDomain
		if cell = trimCell(cell); cell == "" && field != fieldText || field == "" || field == FieldIgnore {
			continue
		}
		fail := func(format string, args ...any) {
			faults, faulty = append(faults, Fault{l.row, columns[n].heading, fmt.Sprintf(format, args...)}), true
		}
		switch field {
		case FieldKind:
			k := slices.IndexFunc(allKinds, func(k Kind) bool { return strings.EqualFold(string(k), cell) })
			if k < 0 {
				fail("%q is none of %s", Shorten(cell), JoinKinds(allKinds))
				continue
			}
			r.Kind = allKinds[k]
		case FieldRanges, FieldNetwork:
			isNetwork = isNetwork || field == FieldNetwork
			ranges, singles, err := parseRanges(cell)
			var bits *hostBitsError
			if errors.As(err, &bits) && isNameable(columns[n].heading) {
				fail("%v; if the column has addresses, add --map %s", err, QuoteShell(Shorten(columns[n].heading)+"="+FieldAddress))
				continue
			}
			if err != nil {
				fail("%v", err)
				continue
			}
			r.Ranges, r.Singles = append(r.Ranges, ranges...), r.Singles && singles
		case FieldAddress:
			ranges, edge, err := parseAddresses(cell)
			if err != nil {
				fail("%v", err)
				continue
			}
			r.Ranges = append(r.Ranges, ranges...)
			r.Singles = r.Singles && !slices.ContainsFunc(ranges, func(one allocator.Range) bool { return one.First != one.Last })
			if edge != "" {
				r.Edge, r.Reserved = edge, true
			}
		case FieldFirst, FieldLast:
			ranges, _, err := parseAddresses(cell)
			if err != nil || len(ranges) != 1 || ranges[0].First != ranges[0].Last {
				fail("%q is not an IP address", Shorten(cell))
				continue
			}
			if r.Singles = false; field == FieldFirst {
				first = ranges[0].First
			} else {
				last, lastHeading = ranges[0].First, columns[n].heading
			}
		case FieldStatus:
			status = cell
		case fieldAction:
			isDeleted = slices.Contains([]string{"d", "delete"}, strings.ToLower(cell))
		case fieldReverse:
			reverse = cell
		case FieldGateway:
			if isTrue(cell) {
				r.Reserved = true
			}
		case FieldRole:
			if slices.Contains(virtualRoles, strings.ToLower(cell)) {
				r.Type = "loadbalancer"
			}
		case FieldDescription:
			descriptions = append(descriptions, cell)
		case fieldText:
			descriptions = append(descriptions, raw)
		case FieldName:
			r.Name = cell
		case FieldTenant:
			r.Tenant = cell
		case FieldType:
			r.Type = cell
		case FieldTeam:
			r.Team = cell
		case FieldMode:
			r.Mode = cell
		case FieldPorts:
			r.Ports = splitList(cell)
		case FieldDomain:
			r.Domain = cell
		}
	}
	switch {
	case isDeleted:
		r.NotInUse = "rows that the file deletes (import-action)"
		return r, nil
	case faulty:
		return r, faults
	}
	r.Description = strings.Join(descriptions, "; ")
	if a, ok := parseReverse(reverse); ok && len(r.Ranges) == 0 {
		if one, err := allocator.NewRange(a, a); err == nil {
			r.Ranges = []allocator.Range{one}
		}
	}
	if first.IsValid() || last.IsValid() {
		if !last.IsValid() {
			last = first
		}
		joined, err := allocator.NewRange(first, last)
		if err != nil {
			return r, Faults{{l.row, lastHeading, err.Error()}}
		}
		r.Ranges = append(r.Ranges, joined)
	}
	switch word := normalize(status); {
	case slices.Contains(reservedStatuses, word):
		r.Reserved = true
	case slices.Contains(freeStatuses, word):
		r.NotInUse = fmt.Sprintf("free addresses: the file says %q", Shorten(status))
	case word == "container", isNetwork && r.Tenant == "":
		r.NotInUse = notInUseNetworks
	}
	switch {
	case r.NotInUse != "":
	case len(r.Ranges) == 0:
		return r, Faults{{Row: l.row, Text: noAddress}}
	case len(r.Ranges) > maxRanges:
		return r, Faults{{Row: l.row, Text: fmt.Sprintf("has %d addresses and ranges, %d at most: split the row", len(r.Ranges), maxRanges)}}
	}
	return r, nil
}

// reservedStatuses and freeStatuses list normalized values of FieldStatus. Other values
// mean that the addresses are in use, also those that sound as if they were not, such as
// "inactive" and "deprecated": an address is free only if the file says so.
var (
	reservedStatuses = []string{"reserved", "reserviert", "réservé", "reservado", "riservato"}
	freeStatuses     = []string{
		"available", "free", "unused", "notused", "notinuse", "unallocated", "expired", "released", // SolarWinds, Infoblox, BlueCat, leases of Windows
		"frei", "verfügbar", "unbenutzt", "libre", "disponible", "libero", "disponibile", "livre", "disponível",
	}
)

// virtualRoles lists the roles of NetBox for addresses that several machines share.
var virtualRoles = []string{"vip", "anycast"}

func isTrue(cell string) bool {
	return slices.Contains([]string{"1", "true", "yes", "y"}, strings.ToLower(cell))
}

// dash matches the dashes of a range, also those that word processors write, with blanks
// around them.
var dash = regexp.MustCompile(`[\s\x{a0}]*[-\x{2010}-\x{2015}\x{2212}][\s\x{a0}]*`)

// splitList splits a cell at blanks, line breaks, commas and semicolons. Blanks around
// dashes are removed first, and an apostrophe, with which Excel marks a text.
func splitList(cell string) []string {
	return strings.FieldsFunc(dash.ReplaceAllString(strings.TrimPrefix(cell, "'"), "-"), isListSeparator)
}

func isListSeparator(r rune) bool {
	return r == ',' || r == ';' || unicode.IsSpace(r) || isInvisible(r)
}

// paddedAddress matches an IPv4 address whose numbers have leading zeros, as some tools
// write addresses for sorting.
var paddedAddress = regexp.MustCompile(`^\d{1,3}(\.\d{1,3}){3}$`)
