package journal

import (
	"crypto/rand"
	"strings"
)

// NewIdentity names a process in the journal, and where others reach it: name@address_random. No two processes share one, so that a late
// write of an earlier life is not taken for one's own. address is host:port.
func NewIdentity(name, address string) string { return name + "@" + address + "_" + rand.Text()[:8] }

// AddressOf is where the process of an identity listens, "" where it does not say.
func AddressOf(identity string) string {
	_, rest, _ := strings.Cut(identity, "@")
	address, _, _ := strings.Cut(rest, "_")
	return address
}
