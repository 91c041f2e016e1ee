package object

import "encoding/json"

// Bounds of the lists that the manager writes. etcd denies a request of more than 1.5 MiB
// (1,536 KiB), so that nothing of the object could be written: each list has a bound in
// bytes of JSON, and the sum of an object is below that limit:
//
//	NetworkPool      status.releases                    1,024 records of at most 870 bytes      870 KiB
//	                 status.infrastructureAllocations   maxInfrastructure of kinds/butler       256 KiB, with its managedFields
//	                 status.unmanagedRanges             512 ranges of at most 110 bytes          55 KiB
//	                 annotations                        limit of the API server                 256 KiB
//	IPPool           status.indexes                     maxIndexes of kinds/metal3            1,024 KiB
//	                 annotations                        limit of the API server                 256 KiB
//	ProxyIPPool      status.allocations                 1,000 entries of at most 330 bytes      323 KiB
//	IPAllocation     status.addresses                   4,096 of at most 42 bytes               168 KiB
//	ConfigMap        moved ranges                       1,500 of at most 600 bytes              879 KiB (limit 1 MiB)
//	AllocationHistory  records                          package history                          64 KiB, further records in further objects
//	Lease            journal                            journal.MaxEncoded, with the bounds of package ledger
//	annotation       cooldown list                      what other annotations leave of 256 KiB (poolrecord.FormatList)

// CountFitting returns how many elements from the beginning of a list fit into a number
// of bytes of JSON. extra is the number of bytes beside the JSON of an element.
func CountFitting[T any](list []T, bytes, extra int) int {
	for n := range list {
		text, err := json.Marshal(list[n])
		if err != nil {
			return n
		}
		if bytes -= len(text) + 1 + extra; bytes < 0 {
			return n
		}
	}
	return len(list)
}
