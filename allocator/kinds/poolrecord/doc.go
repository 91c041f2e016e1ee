// Package poolrecord encodes two of the three stores of a pool's cooldowns and moved
// ranges:
//
//	cooldown list     annotation butler.butlerlabs.dev/cooldown of a NetworkPool or IPPool: cooldowns and moved ranges       ReadList, FormatList
//	moved record      ConfigMaps in the manager's namespace: moved ranges of a pool (package movedrecords)                   ParseMoved, FormatMoved
//	release records   status.releases of a NetworkPool: releases of IPAllocations, which are in the cooldown list only       not here
//	                  without a release record
//
// A ProxyIPPool has no reuse delay and no cooldown list.
//
// Every function is pure. The size of a decoded text is bounded, since other clients can
// write the annotation.
package poolrecord
