package sandbox

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// caller returns the name of the manager that opened a connection to a link, "" if no
// manager did.
func (s *Sandbox) caller(client, link netip.AddrPort) string {
	socket := socketOf(client, link)
	for _, manager := range s.Managers() {
		if socket != "" && owns(manager.Pid(), socket) {
			return manager.Name()
		}
	}
	return ""
}

// socketOf returns the kernel's name of the socket at the local end of a TCP connection,
// as it appears among the descriptors of a process; "" if the socket no longer exists.
func socketOf(local, remote netip.AddrPort) string {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(table)) {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid
		// timeout inode …
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[1] == kernelAddress(local) && fields[2] == kernelAddress(remote) {
			return "socket:[" + fields[9] + "]"
		}
	}
	return ""
}

// kernelAddress formats an IPv4 address and port as the kernel's tables do: the address
// is a number in the machine's byte order.
func kernelAddress(a netip.AddrPort) string {
	bytes := a.Addr().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(bytes[:]), a.Port())
}

// owns reports whether a process has a socket open.
func owns(pid int, socket string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	descriptors, _ := os.ReadDir(dir) // empty if the process has just ended
	for _, descriptor := range descriptors {
		if open, err := os.Readlink(filepath.Join(dir, descriptor.Name())); err == nil && open == socket {
			return true
		}
	}
	return false
}
