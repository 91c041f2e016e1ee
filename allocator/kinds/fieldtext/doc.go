// Package fieldtext parses the texts of fields (addresses, networks, ranges, names),
// explains their faults, and quotes texts of other authors in messages.
//
// Every function is pure.
package fieldtext
