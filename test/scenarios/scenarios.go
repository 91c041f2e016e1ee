// Package scenarios reads what claims of an IPPool get, from the files in allocator/ledger/metal3/testdata, which say what their fields mean. The
// arithmetic is held to them as well as the whole allocator on an API server.
//
//	scenarios.yaml   claims that come and go, one step after the other
//	entries.yaml     which addresses an entry of spec.pools has
//	example.yaml     the example of Metal3's own book, from its first address to its last
package scenarios

import (
	"net/netip"
	"os"
	"strings"

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

// Entry is a pool's only one, and the addresses that it has.
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

// Pool is one of this entry alone.
func (e Entry) Pool() v1alpha1.IPPoolSpec {
	return v1alpha1.IPPoolSpec{NamePrefix: "p", Pools: []v1alpha1.Pool{e.Entry}}
}

// Example is a pool that is used up.
type Example struct {
	Pool  v1alpha1.IPPoolSpec
	Kept  string // claim
	Gives []Run
}

// Run is addresses that follow each other, and what each of them comes with.
type Run struct {
	First, Last netip.Addr
	Prefix      int
	Gateway     v1alpha1.IP
}

// Answers are what the example's claims get, in their order.
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

// Read reads a file of scenarios. What a pool's namePrefix does not say is abcpref.
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
