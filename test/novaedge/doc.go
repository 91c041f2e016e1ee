// Package novaedge tests ProxyIPPools, ProxyVIPs and Services of type LoadBalancer. It
// uses a real API server with two managers. TestProduct_DocumentedExample creates the
// objects of NovaEdge's document as printed and checks the documented results.
//
// The table lists the cases by which the allocator is compared with NovaEdge's own
// allocator (commit 2df3b09). Names of subtests and comments in this package use the same
// numbers:
//
//	P  case in NovaEdge's ipam/pool_test.go
//	A  case in NovaEdge's ipam/allocator_test.go
//	S  case in NovaEdge's service_controller_test.go
//	T  case that NovaEdge does not test
//	N  defect of NovaEdge's allocator that must not occur here
//
// Tests whose name begins with TestClaim are in package test/claims.
//
//	P1-P4, P12        size of pools of networks, addresses, both         TestProxyIPPool_Offers
//	P5, A2            invalid network or address in a pool               TestProxyIPPool_Invalid
//	P6, P9, P11, A6,  allocate, count, release, allocate again           TestClaim_Create, TestClaim_Exhaustion
//	A8, A10, A16, T5
//	P7, A17           the same owner keeps its address                   TestClaim_ExactAddress, TestProxyVIP_Update
//	P8, A15           full pool                                          TestClaim_Exhaustion
//	P10               addresses inside and outside a pool                TestProxyVIP_StaticAddress
//	A3, T9            pool grows, or shrinks below its owners            TestClaim_PoolShrinks, TestClaim_Exhaustion
//	A4, T8            pool with owners is deleted: denied                TestClaim_PoolDeletion
//	A5, T10, N12      VIP before its pool: stored, waits                 TestProxyVIP_BeforeItsPool
//	A11, T2, N3       overlapping pools                                  TestProxyIPPool_Overlapping, TestConflict_AroundTheWebhooks
//	A13               two pools allocate independently                   TestProxyIPPool_Offers
//	A14, T1, T15      concurrent creates while leaders are killed        TestConcurrentCreates_WhileLeadersDie
//	S1, S2            Service without annotation, or not LoadBalancer    TestService_WithoutARequestOrInvalid
//	S3-S5, S9, S10    fields of the ProxyVIP, status of the Service      TestService_GetsAnAddress
//	S6, S11, S15      invalid annotations                                TestService_WithoutARequestOrInvalid, TestProxyVIP_Invalid
//	S7, T18, N5-N7    deleted Service, namesake in another namespace     TestService_OwnsItsAddress
//	S8, N16, N17      Service before its pool, or with a full pool       TestService_BeforeItsPool
//	S12, S14          repeated reconcile, address without prefix length  TestService_GetsAnAddress
//	S13, N9           flag --service-vips off                            TestAPISwitch_ServiceVIPs
//	T1, N1, N8        restart of managers                                TestService_KeepsItsAddressThroughRestarts
//	T3, T4, T16, N4   exact address, autoAssign: false                   TestProxyVIP_StaticAddress
//	T6, T7            poolRef changed or removed                         TestProxyVIP_Update
//	T11               full pool: VIPs are served in order of creation    TestProxyVIP_WaitingAreServedInOrder
//	T12, T13          numeric order, prefix lengths, host bits           TestProxyIPPool_Offers, _Invalid, _WarnsOfHostBitsAndOverlaps
//	T14               address families                                   TestProxyVIP_Families
//	T17               counters after each step, 0 printed as 0           TestClaim_Create, TestProxyVIP_WaitingAreServedInOrder
//	N1                addresses recorded in status only                  TestAdoption_FromStatus
//	N10               updates of a Service                               TestService_OwnsItsAddress
//
// A1, A7, A9 and A12 test internal functions of NovaEdge that its API does not expose.
//
// Three results differ from NovaEdge: a pool with owners cannot be deleted or replaced
// (A4); a VIP or Service without pool is not an error but waits (A5, S8); and the
// ProxyVIP of a Service records the Service in labels, because an owner reference from a
// cluster-scoped object to a namespaced object is invalid (S4). T6: poolRef is immutable
// while addresses are owned. T7: a VIP that removes poolRef keeps its address.
package novaedge
