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
// Feed.Outdated returns since when the objects of Watch are not current, for example
// because the API server cannot be reached.
//
// The package reads API objects with the rights of its caller, and stores no object:
// Check sends a create as a dry run.
//
//	resource                                               result
//	not installed                                          no objects
//	the caller may list the objects of one namespace       the objects of the namespace; the Inventory declares the resource as incomplete
//	the caller may not list the resource                   no objects; the Inventory declares the resource as not read
package cluster
