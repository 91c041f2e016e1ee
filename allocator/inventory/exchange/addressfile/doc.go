// Package addressfile reads the files that address management tools export (NetBox, phpIPAM, Infoblox, Windows, other CSV files), and writes and reads the files
// of kubectl ipam export.
//
//	file ──▶ Read, with a Mapping ──▶ File (Records)
//	Entries ──▶ WriteCSV, WriteYAML ──▶ file ──▶ Read
//
// A Record says what a row contains. The caller decides what the row becomes.
//
// Bounds: MaxBytes, MaxRows, MaxColumns and MaxCell limit a file. Each error names the row, the column, the value and the remedy.
package addressfile
