package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// MetalLBNamespace is the namespace of MetalLB's configuration.
const MetalLBNamespace = "metallb-system"

// StartMetalLB installs MetalLB's CRDs, starts MetalLB's controller, which assigns addresses to Services, and returns when it works. There is no speaker,
// the component that announces addresses on a network. The controller ends with the sandbox.
func (s *Sandbox) StartMetalLB(ctx context.Context) (*Process, error) {
	binary := filepath.Join(s.root, "bin", "metallb-controller")
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%w: build it with make metallb", err)
	}
	if err := apply(ctx, s.client, newObject("v1", "Namespace", MetalLBNamespace)); err != nil {
		return nil, err
	}
	if err := s.InstallCRDs(ctx, "bin/metallb-crds"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	port, err := s.reserve()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	probe, err := s.httpProbe("http://" + port.addr.String() + "/metrics")
	if err != nil {
		return nil, err
	}
	process := s.newProcess("metallb-controller", binary, []string{
		fmt.Sprintf("--port=%d", port.addr.Port()), "--namespace=" + MetalLBNamespace, "--webhook-mode=disabled", "--log-level=info",
	}, probe)
	process.env = []string{"KUBECONFIG=" + s.Kubeconfig()}
	if err := process.Start(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.others = append(s.others, process)
	s.mu.Unlock()
	return process, process.Ready(ctx)
}
