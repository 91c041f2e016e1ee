package clocks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// One control plane with one manager, and the webhooks. Tests set its clock and start it
// again.
var (
	cluster *sandbox.Sandbox
	admin   client.WithWatch
	binary  string // of a manager whose clock can be set
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctrllog.SetLogger(logr.Discard()) // of what keeps certificates in this process
	dir, err := os.MkdirTemp("", "butler-ipam-clocks-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "butler-ipam")
	build := exec.Command("go", "build", "-tags", "chaos", "-o", binary, "../../cmd/butler-ipam")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "go build -tags chaos:", err)
		return 1
	}
	o := sandbox.Options{Replicas: 1, ManagerBinary: binary, ClusterAPI: true, Tenants: true, ManagerArgs: []string{
		"--shutdown-delay=0s", "--tenants", "--tenants-orphan-after=" + patience.String(), "--tenants-release-limit=" + patience.String(),
	}}
	return suite.Run(m, o, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		admin, err = suite.NewClient(s)
		return err
	})
}

// restart ends a manager without warning and starts it again.
func restart(t *testing.T, m *sandbox.Manager) {
	t.Helper()
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = m.Wait(t.Context()) // which says that it was killed
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}
