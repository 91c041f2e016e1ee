package sandbox

import (
	"context"
	"fmt"
	"net/netip"
)

// MetalLBNamespace is the namespace of MetalLB's configuration.
const MetalLBNamespace = "metallb-system"

// StartMetalLB installs MetalLB's CRDs, starts MetalLB's controller, which assigns
// addresses to Services, and returns when it works. There is no speaker, the component
// that announces addresses on a network. The controller ends with the sandbox.
func (s *Sandbox) StartMetalLB(ctx context.Context) (*Process, error) {
	if err := apply(ctx, s.client, newObject("v1", "Namespace", MetalLBNamespace)); err != nil {
		return nil, err
	}
	if err := s.InstallCRDs(ctx, "bin/metallb-crds"); err != nil {
		return nil, err
	}
	return s.StartProgram(ctx, Program{
		Name: "metallb-controller", Path: "bin/metallb-controller", Build: "make metallb", ProbePath: "/metrics",
		Args: func(probe, _ netip.AddrPort) []string {
			return []string{fmt.Sprintf("--port=%d", probe.Port()), "--namespace=" + MetalLBNamespace, "--webhook-mode=disabled", "--log-level=info"}
		},
	})
}
