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

// restartDelay is the minimum time between the start of a manager that died and its
// restart. It keeps a manager that cannot run from using all CPU time.
const restartDelay = 5 * time.Second

// Readiness probe of config/manager.
const (
	probePeriod  = 2 * time.Second
	probeTimeout = 2 * time.Second
)

// forgetDelay is the time in which a terminating manager still gets new connections: a
// Service observes the termination with a delay.
const forgetDelay = time.Second

// Manager is one replica of the manager.
type Manager struct {
	*Process
	// WebhookAddress, HealthAddress, MetricsAddress and ProfileAddress are host:port.
	// WebhookAddress speaks HTTPS, the others plain HTTP.
	WebhookAddress, HealthAddress, MetricsAddress, ProfileAddress string
	// PeerAddress is the host:port at which the manager's peers reach its webhooks. The
	// journal identifies the manager by this address.
	PeerAddress string
	// APIServer is the link through which the manager reaches the API server. Peers is
	// the link through which the manager's peers reach the manager; callers on Peers are
	// names of managers. Both are nil without Options.Links. The API server reaches the
	// manager directly.
	APIServer, Peers *Link

	clock   string // file
	certDir string // per manager, because replicas observe a renewed Secret at different times; "" if the manager creates its certificate
}

// SetClock sets the manager's wall clock ahead of the real clock by whole seconds, or
// behind it if by is negative. Only managers built with the tag chaos read this value.
func (m *Manager) SetClock(by time.Duration) error {
	return writeFile(m.clock, []byte(by.String()))
}

// AddManager starts one more manager with the flags of Options.ManagerArgs and args, and
// returns when the manager serves. The last of two equal flags takes effect.
func (s *Sandbox) AddManager(ctx context.Context, args ...string) (*Manager, error) {
	manager, err := s.startManager(args...)
	if err != nil {
		return nil, err
	}
	return manager, manager.Ready(ctx)
}

// startManager starts one more manager, without waiting until it serves, and adds it to
// the front as an endpoint.
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

// link creates the links of a manager. The caller holds mu.
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

// watch logs the death of a manager and, with Options.Restart, restarts the manager. It
// returns when the sandbox stops or the manager is not restarted.
func (s *Sandbox) watch(manager *Manager, started time.Time) {
	for {
		run := manager.current() // a test may start the next process before this goroutine reads the outcome
		select {
		case <-s.stop:
			return
		case <-run.exited:
		}
		if s.isStopping() {
			return
		}
		s.logf("%s has ended: %s", manager.Name(), run.cmd.ProcessState)
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

// restart restarts a manager, and returns false if the manager does not run again.
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

// panicked matches the output of a Go program that panicked, whether or not the panic
// ended the program.
var panicked = regexp.MustCompile(`(?m)^(panic|fatal error): .*$|^.*(Observed a panic|panic serving|recovered from panic).*$`)

// panics returns an error if a manager has panicked: a restart would hide the panic.
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

var (
	// lackedRight matches a client's log line, in any format, about a call that the API
	// server denied for a missing right.
	lackedRight = regexp.MustCompile(`(?m)^.* is forbidden: User \S+ cannot .*$`)
	// dataRace matches the first lines of a report of the race detector.
	dataRace = regexp.MustCompile(`WARNING: DATA RACE\n(?:.*\n){0,20}`)
)

// CheckLogs returns an error if the log of a manager reports a data race, or a call that
// was denied because the roles of the manager do not grant it. Do not call it after the
// API server or etcd was stopped: an API server that cannot read roles denies calls too.
func (s *Sandbox) CheckLogs() (err error) {
	for _, m := range s.Managers() {
		text, readErr := os.ReadFile(m.LogPath())
		err = errors.Join(err, readErr)
		if line := lackedRight.Find(text); line != nil {
			err = errors.Join(err, fmt.Errorf("%s lacks a right: %s", m.Name(), line))
		}
		if report := dataRace.Find(text); report != nil {
			err = errors.Join(err, fmt.Errorf("%s: %s", m.Name(), report))
		}
	}
	return err
}
