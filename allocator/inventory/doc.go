// Package inventory computes from stored pools and claims: the owner of an address, the free ranges of a pool, the number of claims that a pool can still
// serve, and the effect of a change of a pool.
//
//	stored objects, journal ──▶ Inventory ──▶ Pools, Claims, Segments, Grid, Fit, Plan
//
// The packages below use an Inventory:
//
//	cluster         reads and watches the objects of a cluster
//	health          finds defects of the objects and of the installation
//	historyrecord   encodes and decodes the records of past owners
//	report          formats tables and JSON
//	exchange        plans an import, and exports a pool
//	console         serves the pages
//
// An Inventory converts the objects as the manager does, and feeds a state.State with them. Counts, conflicts and the choice of ranges are therefore those of
// the manager, with these differences, as long as each lasts:
//
//   - claims and grants that are newer than the objects and the journal that were read are missing
//   - if the journal could not be read, granted ranges and ranges withheld by the update of a pool are free
//   - moved ranges without room in the cooldown list of their pool are free
//
// The package is pure: the caller reads the objects and passes the time. An Inventory is not safe for concurrent use.
package inventory
