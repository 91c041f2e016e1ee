package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/discovery"
)

// MetalLBNamespace is where MetalLB's configuration is.
const MetalLBNamespace = "metallb-system"

// StartMetalLB installs MetalLB's CRDs, starts its controller, which gives Services their addresses, and returns when that works. The speaker,
// which announces them on a network, there is none of. It ends with the sandbox.
func (s *Sandbox) StartMetalLB(ctx context.Context) (*Process, error) {
	binary, crdDir := filepath.Join(s.root, "bin", "metallb-controller"), filepath.Join(s.root, "bin", "metallb-crds")
	for _, path := range []string{binary, crdDir} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w: build it with make metallb", err)
		}
	}
	crds, err := readDirectory(crdDir)
	if err != nil {
		return nil, err
	}
	if err := apply(ctx, s.client, append(crds, newObject("v1", "Namespace", MetalLBNamespace))...); err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(s.admin)
	if err != nil {
		return nil, err
	}
	if err := awaitEstablished(ctx, s.client, d, crds); err != nil {
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
