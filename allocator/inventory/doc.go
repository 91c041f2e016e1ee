// Package inventory answers what operators ask about stored pools and claims: who owns an address, which ranges are free, how many claims still fit, what a
// change of a pool would do, and which defects there are, also of the installation.
//
//	stored objects, journal ──▶ Inventory ──▶ Pools, Claims, Segments, Grid, Fit, Plan, Check
//
// An Inventory feeds the objects to a state.State, converted as the manager converts them. So an Inventory counts, resolves conflicts and chooses ranges by the
// code of the manager. Three things are known to the manager only, and may make the numbers differ for as long as they last:
//
//   - claims and grants newer than the objects and the journal that were read
//   - ranges withheld by the update of a pool, and grants, if the journal could not be read
//   - moved ranges without room in the cooldown list of their pool
//
// The package is pure: it reads nothing, and gets the time from its caller. An Inventory is not safe for concurrent use.
package inventory
