// Package claims reconciles claims of every kind:
//
//	claims stored with addresses but without a grant    adopted
//	claims stored without addresses                     granted addresses
//	claims in conflict                                  flagged
//	claims that own their addresses                     mirrored into the status
//	claims being deleted                                release continued
//
// Reconciler serves one claim; Waiting serves, pool by pool, the claims that have no
// allocation. Both act only on the leader. An Adapter reads and writes the fields of a
// kind.
package claims
