// Package admission holds the tests of what a client of the API server sees of the webhooks: a create that answers with its addresses,
// updates that leave them alone, dry runs, refusals and their texts, and what becomes of bad input.
//
// All of them share one sandbox, a real control plane with one manager, and run side by side in namespaces of their own. Every test
// uses networks of its own too: pools of one routing domain never give an address twice, whatever namespace they are in.
package admission
