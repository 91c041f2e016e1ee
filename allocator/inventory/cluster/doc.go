// Package cluster reads the objects for package inventory from an API server.
//
//	Read                lists pools and claims once: kubectl ipam pools
//	Watch               keeps pools and claims by informers: the console
//	WatchEvents         keeps the events about pools: the console
//	WatchTenants        keeps TenantClusters and ProviderConfigs: the console
//	ReadProvider        reads a ProviderConfig: kubectl ipam fit --provider
//	ReadInstallation    reads Clusters, Nodes, Services and the objects of the manager: page health of kubectl ipam ui
//	Check               reads an installation and tries a create: kubectl ipam check
//
// The package reads API objects by the rights of its caller, and stores nothing: Check sends a create as a dry run. A resource that is not installed has no objects. A
// resource that the caller may not list in all namespaces is read in one namespace, and the Inventory declares the resources that it lacks.
package cluster
