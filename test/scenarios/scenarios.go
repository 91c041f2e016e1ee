// Package scenarios reads what claims of an IPPool get, one step after the other, from allocator/ledger/metal3/testdata/scenarios.yaml, which says
// what the fields mean. The arithmetic is held to them as well as the whole allocator on an API server.
package scenarios

import (
	"net/netip"
	"os"

	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Scenario is one of them.
type Scenario struct {
	Name   string
	Stored bool // the pool breaks rules that came later
	Pool   v1alpha1.IPPoolSpec
	Held   []netip.Addr
	Steps  []Step
}

// Step is something done to a claim, and what comes of it.
type Step struct {
	Claim, Retry, Release string
	IPAddress             string
	Error                 string
	Want                  Answer
}

// Answer is what a claim gets.
type Answer struct {
	Address    netip.Addr
	From, To   netip.Addr // where Address may be any of them
	Prefix     int
	Gateway    *v1alpha1.IP
	DNSServers []v1alpha1.IP
	Name       string // of its IPAddress; not compared where empty
}

// Settle takes over from what a claim got what the answer leaves open: which of several addresses, and the name.
func (a Answer) Settle(got Answer) Answer {
	if a.From.IsValid() && !got.Address.Less(a.From) && !a.To.Less(got.Address) {
		a.From, a.To, a.Address = netip.Addr{}, netip.Addr{}, got.Address
	}
	if a.Name == "" {
		a.Name = got.Name
	}
	return a
}

// Read reads a file of scenarios. What a pool's namePrefix does not say is abcpref.
func Read(path string) ([]Scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []Scenario
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Pool.NamePrefix == "" {
			all[i].Pool.NamePrefix = "abcpref"
		}
	}
	return all, nil
}
