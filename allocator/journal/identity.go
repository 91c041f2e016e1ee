package journal

import (
	"crypto/rand"
	"strings"
)

// NewIdentity returns the identity of a process in the journal, name@address_random, with
// the address (host:port) at which other replicas reach the process. The random part
// differs for each process, so that a late write of an earlier process is not mistaken
// for a write of its successor.
func NewIdentity(name, address string) string { return name + "@" + address + "_" + rand.Text()[:8] }

// AddressOf returns the address of an identity, "" if it has none.
func AddressOf(identity string) string {
	_, rest, _ := strings.Cut(identity, "@")
	address, _, _ := strings.Cut(rest, "_")
	return address
}
