package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// startControllers starts kube-controller-manager and returns when it serves. The process
// ends with the sandbox.
func (s *Sandbox) startControllers(ctx context.Context) error {
	binary := filepath.Join(s.root, "bin", "kube-controller-manager")
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w: build it with make bin/kube-controller-manager", err)
	}
	port, err := s.reserve()
	if err != nil {
		return err
	}
	probe, err := s.httpProbe("https://" + port.addr.String() + "/healthz")
	if err != nil {
		return err
	}
	process := s.newProcess("kube-controller-manager", binary, []string{
		"--kubeconfig=" + s.Kubeconfig(),
		"--bind-address=" + port.addr.Addr().String(),
		fmt.Sprintf("--secure-port=%d", port.addr.Port()),
		"--tls-cert-file=" + s.pki("apiserver.crt"),
		"--tls-private-key-file=" + s.pki("apiserver.key"),
		"--service-account-private-key-file=" + s.pki("service-account.key"),
		"--root-ca-file=" + s.pki("ca.crt"),
		"--leader-elect=false",
		"--profiling=false",
	}, probe)
	if err := process.Start(); err != nil {
		return err
	}
	s.others = append(s.others, process)
	return process.Ready(ctx)
}
