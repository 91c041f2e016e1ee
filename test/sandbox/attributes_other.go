//go:build unix && !linux

package sandbox

import "syscall"

// childAttributes gives a child a process group of its own, so that an interrupt typed at
// the terminal reaches only the sandbox, which then stops its children in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
