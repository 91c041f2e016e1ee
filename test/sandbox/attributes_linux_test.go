package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestSandbox_KilledEndsItsProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	command := exec.Command(testBinary(t))
	command.Env = append(os.Environ(), sandboxDirectory+"="+dir)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	err := poll(t.Context(), func(context.Context) error {
		select {
		case err := <-ended:
			t.Fatalf("the sandbox ended by itself: %v", err)
		default:
		}
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{readPid(t, filepath.Join(dir, "pids", "etcd")), readPid(t, filepath.Join(dir, "pids", "kube-apiserver"))}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the killed sandbox ended with exit code 0")
	}
	for _, pid := range pids {
		err := poll(t.Context(), func(context.Context) error {
			// Empty for a process that has ended, even if nobody has asked yet how.
			commandLine, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && len(commandLine) > 0 {
				return fmt.Errorf("process %d is still there: %q", pid, commandLine)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
