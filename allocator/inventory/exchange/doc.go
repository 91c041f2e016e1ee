// Package exchange reads the files that other address management tools export, plans what their rows become in a pool, and writes the addresses of a pool as a
// file that the package reads back without loss.
//
//	file ──▶ Read ──▶ File (Records) ──▶ NewPlan, with an inventory.Inventory ──▶ Plan (claims, new version of the pool, Conflicts)
//	pool ──▶ Export ──▶ Entries ──▶ WriteCSV, WriteYAML
//
// A Plan finds two sorts of conflicts: of rows with one another, which a dry run of the API server accepts, and of rows with stored claims and pools.
//
// The names of the planned objects derive from their ranges, and a Plan contains only what the cluster lacks. So the Plan of a file that was imported is empty.
//
// The package is pure: it reads its arguments alone. All input is bounded.
package exchange
