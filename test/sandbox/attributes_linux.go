package sandbox

import "syscall"

// childAttributes gives a child process its own process group: an interrupt typed at the
// terminal reaches only the sandbox, which then stops its children in order. On Linux,
// the kernel also kills the child when the sandbox ends without stopping it. (The
// kernel's condition is the end of the thread that started the child. Go ends a thread
// before the process only if a goroutine ends while locked to the thread.)
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
