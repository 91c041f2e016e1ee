package platform

import (
	"net/netip"
	"slices"
	"testing"
)

// The Machine of a Node is in the cluster's network. The other Machines are of tenants.
func TestMachineAddresses_In(t *testing.T) {
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, last}) }
	m := MachineAddresses{nodes: []netip.Addr{at(1), at(2)}, machines: []netip.Addr{at(2), at(3)}}
	if got := m.In(true); !slices.Equal(got, []netip.Addr{at(1), at(2), at(2), at(3)}) {
		t.Errorf("in the cluster's network: %v", got)
	}
	if got := m.In(false); !slices.Equal(got, []netip.Addr{at(3)}) {
		t.Errorf("in another routing domain: %v", got)
	}
}
