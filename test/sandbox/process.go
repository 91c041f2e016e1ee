package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// pollInterval is the interval at which states without notification are checked.
const pollInterval = 50 * time.Millisecond

// Process is a child process that can be stopped and restarted with the same arguments,
// ports and log file.
type Process struct {
	name    string
	path    string
	args    []string
	env     []string // added to the environment of the sandbox
	logPath string
	pidPath string
	// probe checks once whether the process serves.
	probe func(context.Context) error

	mu  sync.Mutex
	run *run // the current run, or the last run
}

// run is one run of a process, from its start to its end.
type run struct {
	cmd      *exec.Cmd
	logStart int64
	serving  chan struct{} // closed after the first success of probe
	killed   atomic.Bool
	told     atomic.Pointer[time.Time] // when SIGTERM was sent
	unready  atomic.Bool               // the last readiness probe failed
	exited   chan struct{}             // closed when the process has ended, after err was set
	err      error                     // result of the process; nil for exit code 0
}

// Name returns "etcd", "kube-apiserver" or "manager-N".
func (p *Process) Name() string { return p.name }

// LogPath returns the file that contains the output of all runs.
func (p *Process) LogPath() string { return p.logPath }

// Start starts the process without waiting until the process serves; Ready waits. Start
// returns an error if the process runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && !closed(p.run.exited) {
		return fmt.Errorf("%s already runs with pid %d", p.name, p.run.cmd.Process.Pid)
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	r := &run{logStart: size, serving: make(chan struct{}), exited: make(chan struct{})}
	r.cmd = exec.Command(p.path, p.args...)
	r.cmd.Env = append(os.Environ(), p.env...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = childAttributes()
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if err := writeFile(p.pidPath, []byte(strconv.Itoa(r.cmd.Process.Pid)+"\n")); err != nil {
		return errors.Join(err, r.cmd.Process.Kill(), r.cmd.Wait())
	}
	p.run = r
	go func() {
		r.err = r.cmd.Wait()
		close(r.exited)
	}()
	go p.awaitServing(r)
	return nil
}

// awaitServing closes r.serving when the probe succeeds. It returns at the end of the
// run.
func (p *Process) awaitServing(r *run) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-r.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	if poll(ctx, p.probe) == nil {
		close(r.serving)
	}
}

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// Pid returns the process ID of the current run, or of the last run.
func (p *Process) Pid() int { return p.current().cmd.Process.Pid }

// Kill sends SIGKILL.
func (p *Process) Kill() error {
	p.current().killed.Store(true) // the process ends before this program observes the end
	return p.signal(syscall.SIGKILL)
}

// Terminate sends SIGTERM. A frozen process receives the signal when it is thawed.
func (p *Process) Terminate() error {
	now := time.Now()
	p.current().told.Store(&now)
	return p.signal(syscall.SIGTERM)
}

// Freeze stops the process (SIGSTOP). Its connections stay open and get no responses.
func (p *Process) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw continues a frozen process (SIGCONT).
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig syscall.Signal) error {
	if err := p.current().cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("%s: %s: %w", p.name, sig, err)
	}
	return nil
}

// signalIfThere sends a signal. It returns no error if the process does not run.
func (p *Process) signalIfThere(sig syscall.Signal) error {
	if p == nil || p.current() == nil {
		return nil
	}
	if err := p.signal(sig); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Exited returns a channel that is closed at the end of the current run. Each run has its
// own channel.
func (p *Process) Exited() <-chan struct{} { return p.current().exited }

// Serving reports whether the first readiness probe of the current run has succeeded and
// the process runs.
func (p *Process) Serving() bool { return p.current().isServing() }

func (r *run) isServing() bool { return closed(r.serving) && !closed(r.exited) && !r.killed.Load() }

// Probe checks once whether the process serves now.
func (p *Process) Probe(ctx context.Context) error { return p.probe(ctx) }

// Wait waits for the end of the current run and returns its result: nil for exit code 0,
// else an *exec.ExitError.
func (p *Process) Wait(ctx context.Context) error {
	r := p.current()
	select {
	case <-r.exited:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("%s has not ended: %w", p.name, context.Cause(ctx))
	}
}

// Ready waits until the current run serves. If the run or ctx ends first, the error
// contains the last lines of the log.
func (p *Process) Ready(ctx context.Context) error {
	r := p.current()
	select {
	case <-r.serving:
		return nil
	case <-r.exited:
		return fmt.Errorf("%s ended before it served (%s)\n%s", p.name, r.cmd.ProcessState, p.logTail(r))
	case <-ctx.Done():
		return fmt.Errorf("%s does not serve: %w\n%s", p.name, context.Cause(ctx), p.logTail(r))
	}
}

// stop ends the process if it runs: with SIGTERM, and with SIGKILL after the grace
// period.
func (p *Process) stop(grace time.Duration) error {
	if p == nil || p.current() == nil {
		return nil
	}
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	if err := errors.Join(p.signalIfThere(syscall.SIGTERM), p.signalIfThere(syscall.SIGCONT)); err != nil {
		return err
	}
	exited := p.Exited()
	select {
	case <-exited:
		return nil
	case <-timeout.C:
	}
	if err := p.signalIfThere(syscall.SIGKILL); err != nil {
		return err
	}
	<-exited
	return nil
}

// Tail returns the last log lines of the current run, or of the last run, and the path of
// the complete log.
func (p *Process) Tail() string { return p.logTail(p.current()) }

// logTail returns the last log lines of the run, indented.
func (p *Process) logTail(r *run) string {
	const lines, maxBytes = 20, 16 << 10
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text[min(r.logStart, int64(len(text))):])
	text = text[max(0, len(text)-maxBytes):]
	all := bytes.Split(text, []byte("\n"))
	all = all[max(0, len(all)-lines):]
	return fmt.Sprintf("  %s\n  (from %s)", bytes.Join(all, []byte("\n  ")), p.logPath)
}

// poll calls try until it succeeds. If ctx ends first, poll returns the last error of
// try, or the cause of ctx.
func poll(ctx context.Context, try func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // keep the last error of try, not the error of the ended ctx
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// writeFile replaces a file atomically: readers never see a partial file.
func writeFile(path string, data []byte) error {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
