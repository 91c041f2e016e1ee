// Package cluster reads from an API server what package inventory computes with.
//
//	Read                lists pools and claims once: kubectl ipam pools
//	Watch               keeps pools and claims by informers: the console
//	WatchEvents         keeps the events about pools: the console
//	WatchTenants        keeps TenantClusters and ProviderConfigs: kubectl ipam ui
//	ReadProvider        reads a ProviderConfig: kubectl ipam fit --provider
//	ReadInstallation    reads what shows defects beside pools and claims: kubectl ipam ui
//	Check               does this and tries a create: kubectl ipam check
//
// The package reads API objects only, by the rights of the caller of the API server, and writes nothing. A resource that is not installed has no objects. A
// resource that may not be listed in all namespaces is read in one namespace, and the Inventory declares what it lacks.
package cluster
