// Package inventory computes from stored pools and claims:
//
//   - the owner of an address
//   - the free ranges of a pool
//   - the number of claims that a pool can still serve
//   - the effect of a change of a pool
//
// The data flow:
//
//	stored objects, journal ──▶ Inventory ──▶ Pools, Claims, Segments, Grid, Fit, Plan
//
// The subpackages use an Inventory:
//
//	cluster         reads and watches the objects of a cluster
//	health          finds defects of the objects and of the installation
//	historyrecord   encodes and decodes the records of past owners
//	report          formats tables and JSON
//	safetext        makes text of authors harmless for terminals, browsers and spreadsheets
//	exchange        plans an import, and exports a pool
//	console         serves the pages
//
// An Inventory converts the objects with the code of the manager, and passes them to a
// state.State, the state machine of the manager. Counts, conflicts and the choice of
// ranges therefore equal those of the manager, with these exceptions:
//
//   - claims and grants newer than the objects and the journal that were read are missing
//   - if the journal could not be read, granted ranges and ranges withheld by the update
//     of a pool are free
//   - moved ranges without room in the cooldown list of their pool are free
//
// The package is pure: the caller reads the objects and passes the time. An Inventory is
// not safe for concurrent use.
package inventory
