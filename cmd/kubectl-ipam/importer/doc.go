// Package importer plans the import of an address file into a pool. An import restores
// the rows of package exporter without loss. Package addressfile reads the files.
//
//	addressfile.File ──▶ NewPlan, with an inventory.Inventory ──▶ Plan: claims, new version of the pool, Conflicts
//
// A Plan has a Conflict in each of these cases:
//
//   - two rows of the file contradict each other; a dry run of the API server accepts the
//     two rows
//   - a row contradicts a stored claim or a pool
//   - a row is outside the pool
//   - a planned object, or the pool with the planned reservations, breaks a rule of its
//     API
//
// The name of a planned object is the name in the row, or derives from the range. A Plan
// contains only objects that the cluster lacks. For these two reasons a second import of
// a file has an empty Plan.
//
// Every function is pure.
package importer
