package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"k8s.io/client-go/rest"
)

// restartDelay is how long after its start a manager that died is started again at the earliest, so that one that
// cannot run does not take the machine.
const restartDelay = 5 * time.Second

// How config/manager has a manager probed.
const (
	probePeriod  = 2 * time.Second
	probeTimeout = 2 * time.Second
)

// forgetDelay is how long a manager that was asked to end still gets new connections: a Service takes a moment to hear of it.
const forgetDelay = time.Second

// Manager is one replica of the manager.
type Manager struct {
	*Process
	// WebhookAddress, HealthAddress, MetricsAddress and ProfileAddress are host:port; the first speaks HTTPS, the others plain HTTP.
	WebhookAddress, HealthAddress, MetricsAddress, ProfileAddress string
	// PeerAddress is where its peers reach the webhooks, by which the journal names it too.
	PeerAddress string
	// APIServer is the link by which it reaches the API server, Peers the one by which its peers reach it; nil without Options.Links. The
	// API server reaches it directly. A caller on Peers is a manager's name.
	APIServer, Peers *Link

	clock   string // file
	certDir string // of its own, since not all replicas see a renewed Secret at once; "" where it makes its certificate itself
}

// SetClock has the wall clock of the manager be ahead of the real one from now on, by whole seconds; behind it where by is negative. A
// manager that was built without the tag chaos takes no notice.
func (m *Manager) SetClock(by time.Duration) error {
	return writeFile(m.clock, []byte(by.String()))
}

// AddManager starts one more manager, with these flags beside those of Options.ManagerArgs, and returns when it serves. The last of two equal
// flags counts.
func (s *Sandbox) AddManager(ctx context.Context, args ...string) (*Manager, error) {
	manager, err := s.startManager(args...)
	if err != nil {
		return nil, err
	}
	return manager, manager.Ready(ctx)
}

// startManager starts one more manager without waiting for it, and makes it an endpoint of the front.
func (s *Sandbox) startManager(more ...string) (*Manager, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, errors.New("the sandbox is stopping")
	}
	if _, err := os.Stat(s.options.ManagerBinary); err != nil {
		return nil, fmt.Errorf("%w: build it with make build, or set Options.ManagerBinary", err)
	}
	name := fmt.Sprintf("manager-%d", len(s.managers)+1)
	var addresses [4]string
	for i := range addresses {
		port, err := s.reserve()
		if err != nil {
			return nil, err
		}
		addresses[i] = port.addr.String()
	}
	manager := &Manager{WebhookAddress: addresses[0], HealthAddress: addresses[1], MetricsAddress: addresses[2], ProfileAddress: addresses[3]}
	manager.PeerAddress = manager.WebhookAddress
	account := rest.CopyConfig(s.account)
	if s.options.Links {
		if err := s.link(manager); err != nil {
			return nil, err
		}
		account.Host, manager.PeerAddress = "https://"+manager.APIServer.Address(), manager.Peers.Address()
	}
	kubeconfig := filepath.Join(s.dir, "managers", name+".kubeconfig")
	if err := writeKubeconfig(kubeconfig, account, ManagerNamespace); err != nil {
		return nil, err
	}
	probe, err := s.httpProbe("http://" + manager.HealthAddress + "/readyz")
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig=" + kubeconfig,
		"--namespace=" + ManagerNamespace,
		"--identity=" + name,
		"--webhook-bind-address=" + manager.WebhookAddress,
		"--advertise-address=" + manager.PeerAddress,
		"--health-probe-bind-address=" + manager.HealthAddress,
		"--metrics-bind-address=" + manager.MetricsAddress,
		"--metrics-secure=false",
		"--pprof-bind-address=" + manager.ProfileAddress,
	}, slices.Concat(s.options.ManagerArgs, more)...)
	if s.options.SelfManaged {
		args = append(args, "--webhook-cert-secret=butler-ipam-certificates", "--webhook-service="+webhookService)
	} else {
		manager.certDir = filepath.Join(s.dir, "managers", name+".tls")
		if err := os.CopyFS(manager.certDir, os.DirFS(s.WebhookCertDir())); err != nil {
			return nil, err
		}
		args = append(args, "--webhook-cert-dir="+manager.certDir)
	}
	manager.Process = s.newProcess(name, s.options.ManagerBinary, args, probe)
	manager.clock = filepath.Join(s.dir, "managers", name+".clock")
	manager.env = []string{"BUTLER_IPAM_CHAOS_CLOCK=" + manager.clock}
	started := time.Now()
	if err := manager.Start(); err != nil {
		return nil, err
	}
	s.managers = append(s.managers, manager)
	s.front.Add(name, manager.WebhookAddress, manager.isEndpoint)
	s.watchers.Go(func() { s.watch(manager, started) })
	s.watchers.Go(func() { s.probeReadiness(manager) })
	return manager, nil
}

func (m *Manager) isEndpoint() bool {
	r := m.current()
	told := r.told.Load()
	return r.isServing() && !r.unready.Load() && (told == nil || time.Since(*told) < forgetDelay)
}

// probeReadiness probes a manager until the sandbox stops.
func (s *Sandbox) probeReadiness(m *Manager) {
	ticker := time.NewTicker(probePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		r := m.current()
		r.unready.Store(r.isServing() && m.probe(ctx) != nil)
		cancel()
	}
}

// link makes the links of a manager. The caller holds mu.
func (s *Sandbox) link(manager *Manager) (err error) {
	if manager.APIServer, err = s.newLink(s.apiServerPort.addr.String(), nil); err != nil {
		return err
	}
	manager.Peers, err = s.newLink(manager.WebhookAddress, s.caller)
	return err
}

func (s *Sandbox) newLink(target string, caller func(client, link netip.AddrPort) string) (*Link, error) {
	l, err := newLink(target, caller)
	if err == nil {
		s.links = append(s.links, l)
	}
	return l, err
}

// watch reports the death of a manager and, with Options.Restart, starts it again. It ends with the sandbox, or when the manager
// is left dead.
func (s *Sandbox) watch(manager *Manager, started time.Time) {
	for {
		select {
		case <-s.stop:
			return
		case <-manager.Exited():
		}
		if s.isStopping() {
			return
		}
		s.logf("%s has ended: %s", manager.Name(), manager.current().cmd.ProcessState)
		if !s.options.Restart {
			return
		}
		select {
		case <-s.stop:
			return
		case <-time.After(time.Until(started.Add(restartDelay))):
		}
		started = time.Now()
		if !s.restart(manager) {
			return
		}
	}
}

// restart is false when the manager does not run again.
func (s *Sandbox) restart(manager *Manager) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	if err := manager.Start(); err != nil {
		s.logf("%s", err)
		return false
	}
	s.logf("%s started again with pid %d", manager.Name(), manager.Pid())
	return true
}

// panicked is what a program writes that has gone wrong by itself, whether it ended of it or not.
var panicked = regexp.MustCompile(`(?m)^(panic|fatal error): .*$|^.*(Observed a panic|panic serving|recovered from panic).*$`)

// panics gives an error if a manager has panicked: one that is started again would hide it.
func (s *Sandbox) panics() (err error) {
	for _, m := range s.managers {
		text, readErr := os.ReadFile(m.LogPath())
		err = errors.Join(err, readErr)
		if line := panicked.Find(text); line != nil {
			err = errors.Join(err, fmt.Errorf("%s has panicked: %s", m.Name(), line))
		}
	}
	return err
}

// lackedRight is what a client writes that the API server has refused something for want of a right, in whatever format.
var lackedRight = regexp.MustCompile(`(?m)^.* is forbidden: User \S+ cannot .*$`)

// WithinRights gives an error if the log of a manager says that it was refused something because its roles do not grant it. It is no
// question for sandboxes whose API server or etcd was hurt: an API server that cannot read roles refuses too.
func (s *Sandbox) WithinRights() (err error) {
	for _, m := range s.Managers() {
		text, readErr := os.ReadFile(m.LogPath())
		err = errors.Join(err, readErr)
		if line := lackedRight.Find(text); line != nil {
			err = errors.Join(err, fmt.Errorf("%s needs a right that it does not have: %s", m.Name(), line))
		}
	}
	return err
}
