// Package metal3 tests the APIs of Metal3 and of Cluster API's IPAM contract as their users meet them, on a real API server with two managers.
package metal3
