package sandbox

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"
)

// reservation keeps a loopback port for a child that binds it later, and again after a
// restart.
//
// It is a socket that is bound and never listens. With SO_REUSEADDR on both sides, which
// Go's listeners set, the child may bind and listen on the same port, while the kernel
// does not assign the port to a program that requests any free port.
type reservation struct {
	fd   int
	addr netip.AddrPort
}

func reservePort() (*reservation, error) {
	syscall.ForkLock.RLock() // a child forked before CloseOnExec would keep the port
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		syscall.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback.As4()}); err != nil {
		syscall.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		syscall.Close(fd)
		return nil, os.NewSyscallError("getsockname", err)
	}
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		syscall.Close(fd)
		return nil, fmt.Errorf("getsockname: unexpected address %T", name)
	}
	return &reservation{fd: fd, addr: netip.AddrPortFrom(loopback, uint16(bound.Port))}, nil
}

func (r *reservation) release() error { return syscall.Close(r.fd) }
