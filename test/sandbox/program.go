package sandbox

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// Program is a program of another project that works on the objects of the sandbox.
type Program struct {
	// Name is the name of the process and of its log file.
	Name string
	// Path is the executable, relative to the checkout. Build is the command that builds
	// the executable, for the error if there is none.
	Path, Build string
	// Args returns the arguments. The program gets two free addresses: probe, and another
	// one for its webhooks.
	Args func(probe, webhooks netip.AddrPort) []string
	// ProbePath is the path on the address probe that responds with status 200 when the
	// program serves.
	ProbePath string
}

// StartProgram starts a program with the rights of the administrator and returns when the
// program serves. The program ends with the sandbox.
func (s *Sandbox) StartProgram(ctx context.Context, p Program) (*Process, error) {
	process, err := s.startProgram(p)
	if err != nil {
		return nil, err
	}
	return process, process.Ready(ctx)
}

func (s *Sandbox) startProgram(p Program) (*Process, error) {
	binary := filepath.Join(s.root, p.Path)
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%w: build it with %s", err, p.Build)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ports [2]netip.AddrPort
	for i := range ports {
		port, err := s.reserve()
		if err != nil {
			return nil, err
		}
		ports[i] = port.addr
	}
	probe, err := s.httpProbe("http://" + ports[0].String() + p.ProbePath)
	if err != nil {
		return nil, err
	}
	process := s.newProcess(p.Name, binary, p.Args(ports[0], ports[1]), probe)
	process.env = []string{"KUBECONFIG=" + s.Kubeconfig()}
	if err := process.Start(); err != nil {
		return nil, err
	}
	s.others = append(s.others, process)
	return process, nil
}
