// Package butler tests NetworkPools and IPAllocations. It covers the responses to
// creates, updates, dry runs and denied requests, and the life of pools and allocations
// through restarts, releases and changes that bypass the webhooks.
//
// The tests share one sandbox with one manager and run in parallel, each in a namespace
// of its own. Each test also uses networks of its own, because pools of one routing
// domain never allocate an address twice, also in different namespaces.
package butler
