// Package exchange plans what the rows of an address file become in a pool, and exports the addresses of a pool as rows that an import reads back without loss.
// The package addressfile reads and writes the files.
//
//	addressfile.File ──▶ NewPlan, with an inventory.Inventory ──▶ Plan: claims, new version of the pool, Conflicts
//	pool ──▶ Export ──▶ addressfile.Entry …
//
// A Plan lists two sorts of conflicts:
//
//   - two rows of the file contradict each other; a dry run of the API server accepts both
//   - a row contradicts a stored claim or pool
//
// The names of planned objects derive from their ranges, and a Plan contains only objects that the cluster lacks. So a second import of a file has an empty Plan.
//
// Every function is pure.
package exchange
