// Package novaedge tests ProxyIPPools, ProxyVIPs and Services against a real API server with two managers: what the product's document promises,
// as printed there, and the scenarios that its own code was tested for (P, A, S) or never was (T).
//
//	P1-P5, P12        TestWhatAPoolOffers, TestAPoolThatMakesNoSenseIsRefused
//	P6-P9             TestAddressesAreGivenInOrderAndComeBack
//	P10               TestAStaticAddressIsReserved
//	P11, A6           TestAddressesAreGivenInOrderAndComeBack
//	A2                TestWhatAPoolOffers, TestAPoolThatMakesNoSenseIsRefused
//	A3, A4            TestAPoolKeepsWhatIsHeldOfIt: one that is in use does not go, other than there
//	A5                TestAVIPBeforeItsPoolIsServedWhenThatAppears: it waits, other than there
//	A8, A10, A13      TestAddressesAreGivenInOrderAndComeBack
//	A11               TestOverlappingPoolsGiveAnAddressOnce
//	A14               TestNoAddressIsGivenTwiceWhateverDies
//	A15-A17           TestAddressesAreGivenInOrderAndComeBack
//	A1, A7, A9, A12   are about functions that nobody sees from outside
//	S1, S2, S6, S11   TestAServiceThatDoesNotAskOrMakesNoSenseHasNone
//	S3-S5, S9, S10    TestAServiceThatAsksHasAnAddress: the owner is in labels, as one in a namespace cannot own what is in none
//	S7                TestAnAddressIsOneServicesAndGoesWithIt
//	S8                TestAServiceWaitsForItsPool: it waits, other than there
//	S12, S14          TestAServiceThatAsksHasAnAddress
//	S13               TestServicesAreServedWhileThatIsSwitchedOn
//	S15               TestAServiceThatDoesNotAskOrMakesNoSenseHasNone, TestAVIPThatMakesNoSenseIsRefused
//	T1, T15           TestNoAddressIsGivenTwiceWhateverDies, TestServicesKeepTheirAddressesWhateverDies
//	T2                TestOverlappingPoolsGiveAnAddressOnce, TestHostBitsAndOverlapsAreWarnedOf
//	T3, T4, T16       TestAStaticAddressIsReserved
//	T5, T17           TestAddressesAreGivenInOrderAndComeBack
//	T6, T7            TestUpdates: poolRef is immutable, and a VIP that leaves its pool keeps its address
//	T8, T9            TestAPoolKeepsWhatIsHeldOfIt
//	T10               TestAVIPBeforeItsPoolIsServedWhenThatAppears
//	T11               TestVIPsThatWaitAreServedInTheirOrder, TestAServiceWaitsForItsPool
//	T12, T13          TestWhatAPoolOffers, TestHostBitsAndOverlapsAreWarnedOf, TestAPoolThatMakesNoSenseIsRefused
//	T14               TestFamilies
//	T18               TestAnAddressIsOneServicesAndGoesWithIt
package novaedge
