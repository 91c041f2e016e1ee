// Package addressfile reads the files that address management tools export (NetBox, phpIPAM, Infoblox, Windows, CSV files in general), and writes and reads the
// files of kubectl ipam export.
//
//	file ──▶ Read, with a Mapping ──▶ File (Records)
//	Entries ──▶ WriteCSV, WriteYAML ──▶ file ──▶ Read
//
// A Record contains the values of a row. The caller decides about the object that the row becomes.
//
// Bounds: MaxBytes, MaxRows, MaxColumns and MaxCell limit a file. Errors name the row, the column, the value and the remedy.
package addressfile
