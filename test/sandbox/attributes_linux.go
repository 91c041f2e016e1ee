package sandbox

import "syscall"

// childAttributes gives a child a process group of its own, so that an interrupt typed at the terminal reaches only the sandbox,
// which then stops its children in order; and has the kernel end it when the sandbox is gone without having done so. (To the kernel that
// is the end of the thread that started the child. Go ends a thread before the process only when a goroutine ends locked to it.)
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
