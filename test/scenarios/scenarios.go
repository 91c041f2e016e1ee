// Package scenarios reads the expected results of claims of an IPPool from
// allocator/kinds/metal3/testdata. Each file documents its fields. Two tests use the
// scenarios: one for the address arithmetic alone, and one for the whole allocator on an
// API server.
//
//	scenarios.yaml   claims that are created and deleted, step by step
//	entries.yaml     the addresses of one entry of spec.pools
//	example.yaml     the example of the Metal3 documentation, from its first address to its last
package scenarios

import (
	"net/netip"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Scenario is a pool and a sequence of steps. Owned contains addresses that other claims
// own before the first step.
type Scenario struct {
	Name   string
	Stored bool // the pool was stored by an earlier version: it violates later validation rules
	Pool   v1alpha1.IPPoolSpec
	Owned  []netip.Addr
	Steps  []Step
}

// Step is an operation on a claim (create, retry after a failure, release) and its
// expected result: Error, or Want.
type Step struct {
	Claim, Retry, Release string
	IPAddress             string
	Error                 string
	Want                  Answer
}

// Answer is the result of a claim.
type Answer struct {
	Address    netip.Addr
	From, To   netip.Addr // if set, Address may be any address from From to To
	Prefix     int
	Gateway    *v1alpha1.IP
	DNSServers []v1alpha1.IP
	Name       string // of the address object; not compared if empty
}

// Settle completes an expected answer from the actual answer, where the expected answer
// permits several results: the address if it lies between From and To, and the name if it
// is empty.
func (a Answer) Settle(got Answer) Answer {
	if a.From.IsValid() && !got.Address.Less(a.From) && !a.To.Less(got.Address) {
		a.From, a.To, a.Address = netip.Addr{}, netip.Addr{}, got.Address
	}
	if a.Name == "" {
		a.Name = got.Name
	}
	return a
}

// Entry is the only entry of a pool and its expected addresses.
type Entry struct {
	Name        string
	Entry       v1alpha1.Pool
	First, Last netip.Addr
	Count       int64
	At          map[int64]netip.Addr
	Size        *int64
	Names       map[string]string
	Refused     bool
}

// Pool returns a pool with this entry only.
func (e Entry) Pool() v1alpha1.IPPoolSpec {
	return v1alpha1.IPPoolSpec{NamePrefix: "p", Pools: []v1alpha1.Pool{e.Entry}}
}

// Example is a pool whose addresses are all allocated, one after the other.
type Example struct {
	Pool  v1alpha1.IPPoolSpec
	Kept  string // claim
	Gives []Run
}

// Run is a sequence of consecutive addresses with their prefix length and gateway.
type Run struct {
	First, Last netip.Addr
	Prefix      int
	Gateway     v1alpha1.IP
}

// Answers returns the expected answers of the claims, in order.
func (e Example) Answers() []Answer {
	var all []Answer
	for _, r := range e.Gives {
		for a := r.First; a.Compare(r.Last) <= 0; a = a.Next() {
			name := e.Pool.NamePrefix + "-" + strings.ReplaceAll(a.String(), ".", "-")
			all = append(all, Answer{Address: a, Prefix: r.Prefix, Gateway: &r.Gateway, Name: name})
		}
	}
	return all
}

// Read reads a file of scenarios. The default of namePrefix is abcpref.
func Read(path string) ([]Scenario, error) {
	all, err := read[[]Scenario](path)
	for i := range all {
		if all[i].Pool.NamePrefix == "" {
			all[i].Pool.NamePrefix = "abcpref"
		}
	}
	return all, err
}

// ReadEntries reads a file of entries.
func ReadEntries(path string) ([]Entry, error) { return read[[]Entry](path) }

// ReadExample reads an example.
func ReadExample(path string) (Example, error) { return read[Example](path) }

func read[T any](path string) (read T, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return read, err
	}
	return read, yaml.UnmarshalStrict(text, &read)
}
