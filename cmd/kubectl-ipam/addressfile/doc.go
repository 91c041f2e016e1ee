// Package addressfile reads the files that address management tools export (NetBox,
// phpIPAM, Infoblox, SolarWinds, Windows, CSV files in general), and writes and reads the
// files of kubectl ipam export, and the maps of tenants for kubectl ipam import.
//
//	file ──▶ Read, with a Mapping ──▶ File (Records)
//	Entries ──▶ WriteCSV, WriteYAML ──▶ file ──▶ Read
//	TenantPairs ──▶ WriteTenantMap ──▶ file ──▶ ReadTenantMap
//
// Read never loses a row silently: text that is not read is an error, and a Record says
// why a row is not imported (NotInUse, LeftOut).
//
// A Record contains the values of a row. The caller decides about the object that the row
// becomes.
//
// Bounds: MaxBytes, MaxRows, MaxColumns and MaxCell limit a file. Errors name the row,
// the column, the value and the remedy.
package addressfile
