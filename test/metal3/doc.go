// Package metal3 tests the Metal3 API and Cluster API's IPAM contract. It covers IPPools,
// IPClaims, IPAddressClaims and their address objects, on a real API server with two
// managers.
package metal3
