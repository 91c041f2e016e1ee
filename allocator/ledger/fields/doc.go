// Package fields reads what the objects of all kinds have in common, and words what is wrong with it: addresses and networks as text, names
// of objects as labels, versions. The packages that translate one API into the ledger's words share it.
//
// Every function is pure.
package fields
