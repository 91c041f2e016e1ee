// Package platform reads the objects of the management cluster that exist beside the
// allocator, and finds the addresses that the platform itself uses.
//
//	Cluster        informers and live reads of TenantClusters, ProviderConfigs, ButlerConfig, Services, Nodes and Machines
//	OptionalKind   a kind whose CRD may be installed, upgraded or deleted while the process runs
//	AddressSource  the addresses of one Service, Node or Machine
//	Usage          the addresses of one NetworkPool that the platform uses
//
// The informers keep only the fields that are read. The file addresses.go is pure: plain
// values, no clock, no I/O.
package platform
