package addressfile

import (
	"fmt"
	"maps"
	"slices"
)

// infobloxObject describes the table of an object in an Infoblox file.
type infobloxObject struct {
	fields   map[string]string // heading -> field, in addition to infobloxCommon
	networks bool              // the rows describe networks
	mention  bool              // see Record.Mention
}

// infobloxCommon are columns that several objects have.
var infobloxCommon = map[string]string{
	"importaction": fieldAction, "networkview": FieldDomain, "eatenant": FieldTenant, "comment": FieldDescription,
}

var (
	infobloxFixed = map[string]string{"ipaddress": FieldAddress, "address": FieldAddress, "name": FieldDescription}
	infobloxRange = map[string]string{"startaddress": FieldFirst, "endaddress": FieldLast, "name": FieldDescription}
	infobloxName  = map[string]string{"address": FieldAddress, "fqdn": FieldDescription, "name": FieldDescription, "parent": FieldDescription}
)

// infobloxObjects maps the objects with known columns to their tables.
var infobloxObjects = map[string]infobloxObject{
	"network": {networks: true}, "networkcontainer": {networks: true}, "ipv6network": {networks: true}, "ipv6networkcontainer": {networks: true}, "sharednetwork": {networks: true},
	"fixedaddress": {fields: infobloxFixed}, "ipv6fixedaddress": {fields: infobloxFixed},
	"dhcprange": {fields: infobloxRange}, "ipv6dhcprange": {fields: infobloxRange}, "reservedrange": {fields: infobloxRange}, "bulkhost": {fields: infobloxRange},
	"hostrecord":  {fields: map[string]string{"addresses": FieldAddress, "ipv6addresses": FieldAddress, "fqdn": FieldDescription}},
	"hostaddress": {fields: infobloxName, mention: true}, "ipv6hostaddress": {fields: infobloxName, mention: true},
	"arecord": {fields: infobloxName, mention: true}, "aaaarecord": {fields: infobloxName, mention: true},
	"sharedarecord": {fields: infobloxName, mention: true}, "sharedaaaarecord": {fields: infobloxName, mention: true},
	"ptrrecord": {fields: map[string]string{"address": FieldAddress, "fqdn": fieldReverse, "dname": FieldDescription}, mention: true},
	"lease": {fields: map[string]string{
		"address": FieldAddress, "ipaddress": FieldAddress, "clienthostname": FieldDescription, "hostname": FieldDescription, "name": FieldDescription,
		"bindingstate": FieldStatus, "leasestate": FieldStatus, "state": FieldStatus, "status": FieldStatus,
	}, mention: true},
}

// infobloxTable is the table of an object in a file.
type infobloxTable struct {
	object  string
	known   infobloxObject
	columns []column
}

// newInfobloxTable returns the table with a header.
func newInfobloxTable(object string, header line, mapped map[string]string) infobloxTable {
	known := infobloxObjects[object]
	fields := maps.Clone(infobloxCommon)
	maps.Copy(fields, known.fields)
	return infobloxTable{object, known, columnsOf(header, fields, mapped)}
}

// read reads a row. A row of an object without a column of addresses is left out if one
// of its cells is an address: the address may be in use. Otherwise it has no addresses in
// use: an alias, a zone, a network.
func (t infobloxTable) read(l line) (r Record, faults Faults) {
	if t.known.networks && !hasAddresses(t.columns) {
		return Record{Row: l.row, NotInUse: notInUseNetworks}, nil
	}
	if !hasAddresses(t.columns) {
		for n, cell := range l.cells[:min(len(l.cells), len(t.columns))] {
			heading := t.columns[n].heading
			if t.columns[n].field == "" && slices.ContainsFunc(splitList(trimCell(cell)), isAddressText) {
				return Record{Row: l.row, LeftOut: fmt.Sprintf("objects %q, whose addresses in column %q have no known meaning: add --map %s, or =%s if they are not in use",
					Shorten(t.object), Shorten(heading), QuoteShell(Shorten(heading)+"="+FieldAddress), FieldIgnore)}, nil
			}
		}
		return Record{Row: l.row, NotInUse: fmt.Sprintf("objects %q without addresses", Shorten(t.object))}, nil
	}
	if lost := findLostRow(l, t.columns); lost != nil {
		return r, Faults{*lost}
	}
	r, faults = readRecord(l, t.columns)
	if r.Mention = t.known.mention; len(r.Ranges) == 0 && r.NotInUse == "" && len(faults) == 1 && faults[0].Text == noAddress {
		r.NotInUse, faults = fmt.Sprintf("objects %q without addresses", Shorten(t.object)), nil
	}
	return r, faults
}
