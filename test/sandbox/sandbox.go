package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/pki"
)

const (
	// Namespace is where the pools and allocations of the examples live.
	Namespace = "butler-system"
	// ManagerNamespace is where the managers keep their Lease.
	ManagerNamespace = "butler-ipam-system"

	webhookService = "butler-ipam-webhook"
	managerAccount = "butler-ipam"

	// startTimeout bounds Start if the context has no deadline. It suffices on a machine
	// that runs other tests at the same time.
	startTimeout = 2 * time.Minute
	// stopGrace is the time between SIGTERM and SIGKILL.
	stopGrace = 5 * time.Second
)

// Options configures Start. The zero value is a control plane without managers and
// without webhooks.
type Options struct {
	// Dir is the directory of all files of the sandbox. Start removes files of an earlier
	// sandbox. Default: a temporary directory that Stop removes.
	Dir string
	// Keep keeps the stored objects of an earlier sandbox in Dir.
	Keep bool
	// Assets is the directory with etcd, kube-apiserver and kubectl. Default:
	// KUBEBUILDER_ASSETS, else bin of the checkout.
	Assets string
	// EtcdArgs and APIServerArgs are added to the command lines. The last of two equal
	// flags takes effect.
	EtcdArgs, APIServerArgs []string
	// EtcdBehind starts a proxy in front of etcd: it is called with etcd's host:port, and
	// returns the address that the API server uses. Default: no proxy.
	EtcdBehind func(etcd string) (string, error)
	// Tenants also installs the CRDs in config/tenants and the managers' rights for them.
	// A cluster with the Butler platform already has these CRDs.
	Tenants bool
	// ClusterAPI installs the CRDs of Cluster API that the managers serve or read.
	ClusterAPI bool
	// Controllers starts kube-controller-manager. Without it, namespaces stay
	// Terminating, owner references delete nothing, foreground deletion does not end, and
	// ResourceQuotas count nothing.
	Controllers bool
	// Replicas is the number of managers. With 0, the webhooks are not installed either;
	// InstallWebhooks installs them.
	Replicas int
	// ManagerBinary is the manager's program. Default: bin/butler-ipam of the checkout.
	ManagerBinary string
	// ConfigDir is the directory with the CRDs, roles and webhooks of the managers.
	// Default: config of the checkout.
	ConfigDir string
	// ManagerArgs are added to the command line of every manager.
	ManagerArgs []string
	// SelfManaged lets the managers create their own certificates and write them into the
	// webhook configurations. The chart installs the Secret butler-ipam-certificates and
	// the rights for this. So Replicas must be 0, and AddManager must follow the
	// installation of the chart.
	SelfManaged bool
	// Links inserts a Link between each manager and the API server, and between each
	// manager and its peers.
	Links bool
	// Restart restarts a manager that died, like a kubelet. Without Restart a dead
	// manager stays dead.
	Restart bool
	// Log receives one line per important event. Default: no lines are written.
	Log io.Writer
}

// Sandbox is a running control plane with its managers.
type Sandbox struct {
	options   Options
	root      string // directory of the checkout
	dir       string
	assets    string
	temporary bool
	lock      *os.File
	logMu     sync.Mutex
	log       io.Writer

	authority *pki.Authority
	admin     *rest.Config
	account   *rest.Config // of the managers' service account
	client    client.Client
	front     *Front

	etcdPort, etcdPeerPort, apiServerPort *reservation

	etcd, apiServer *Process

	stop     chan struct{} // closed by Stop
	watchers sync.WaitGroup

	mu           sync.Mutex
	managers     []*Manager
	others       []*Process
	webhooks     *pki.Authority // authority of the managers' certificates after RenewAuthority
	links        []*Link
	reservations []*reservation
	stopping     bool
}

// Start starts a sandbox and returns when all components serve: the API server is ready,
// the custom resources are served, the API server calls the webhooks, and every manager
// is ready. If Start fails, it stops all processes that it started; the error contains
// the last log lines of the failed process. ctx bounds the start only: the sandbox runs
// until Stop.
func Start(ctx context.Context, options Options) (*Sandbox, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	s := &Sandbox{options: options, stop: make(chan struct{})}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Sandbox) start(ctx context.Context) error {
	began := time.Now()
	if err := s.prepare(); err != nil {
		return err
	}
	if err := s.startControlPlane(ctx); err != nil {
		return err
	}
	s.logf("etcd and kube-apiserver serve (%.1fs)", time.Since(began).Seconds())
	if s.options.Controllers {
		if err := s.startControllers(ctx); err != nil {
			return err
		}
		s.logf("kube-controller-manager serves (%.1fs)", time.Since(began).Seconds())
	}
	if err := s.installConfig(ctx); err != nil {
		return err
	}
	if err := s.prepareAccount(ctx); err != nil {
		return err
	}
	if s.options.Replicas > 0 {
		if err := s.startManagers(ctx); err != nil {
			return err
		}
		s.logf("%d manager(s) serve (%.1fs)", s.options.Replicas, time.Since(began).Seconds())
	}
	return writeFile(s.file("ready"), []byte(time.Now().UTC().Format(time.RFC3339)+"\n"))
}

func (s *Sandbox) startManagers(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range s.options.Replicas {
		manager, err := s.startManager()
		if err != nil {
			return err
		}
		group.Go(func() error {
			if err := manager.Ready(ctx); err != nil || manager.Peers == nil {
				return err
			}
			return poll(ctx, manager.Peers.listens)
		})
	}
	group.Go(func() error { return s.InstallWebhooks(ctx) })
	return group.Wait()
}

// prepare creates directories, keys, ports, configurations and the front.
func (s *Sandbox) prepare() (err error) {
	s.log = s.options.Log
	if s.log == nil {
		s.log = io.Discard
	}
	if s.root, err = checkout(); err != nil {
		return err
	}
	if s.options.ManagerBinary == "" {
		s.options.ManagerBinary = filepath.Join(s.root, "bin", "butler-ipam")
	}
	if s.options.ConfigDir == "" {
		s.options.ConfigDir = filepath.Join(s.root, "config")
	}
	if s.assets, err = assets(s.options.Assets, s.root); err != nil {
		return err
	}
	if err := s.prepareDirectory(); err != nil {
		return err
	}
	if s.authority, err = pki.New("sandbox"); err != nil {
		return err
	}
	if err := writePKI(s.authority, s.file("pki")); err != nil {
		return err
	}
	for _, port := range []**reservation{&s.etcdPort, &s.etcdPeerPort, &s.apiServerPort} {
		if *port, err = s.reserve(); err != nil {
			return err
		}
	}
	if s.admin, err = s.ConfigFor("sandbox-admin", "system:masters"); err != nil {
		return err
	}
	if err := writeKubeconfig(s.Kubeconfig(), s.admin, Namespace); err != nil {
		return err
	}
	if s.client, err = client.New(s.admin, client.Options{}); err != nil {
		return err
	}
	s.front, err = NewFront()
	return err
}

// assets returns the directory with the binaries of the control plane.
func assets(dir, root string) (string, error) {
	if dir == "" {
		dir = os.Getenv("KUBEBUILDER_ASSETS")
	}
	if dir == "" {
		dir = filepath.Join(root, "bin")
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%w: build it with make controlplane, or set KUBEBUILDER_ASSETS to a directory that holds it", err)
		}
	}
	return filepath.Abs(dir)
}

// prepareDirectory locks the directory for this sandbox and removes the files of an
// earlier sandbox, except the stored objects if Keep is set.
func (s *Sandbox) prepareDirectory() (err error) {
	if s.options.Dir == "" {
		s.temporary = true
		if s.dir, err = os.MkdirTemp("", "sandbox-"); err != nil {
			return err
		}
	} else if s.dir, err = filepath.Abs(s.options.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if s.lock, err = lockDirectory(s.dir); err != nil {
		return err
	}
	stale := []string{"ready", "kubeconfig", "pids", "logs", "pki", "managers", "kubectl-cache"}
	if !s.options.Keep {
		stale = append(stale, "etcd")
	}
	for _, name := range stale {
		if err := os.RemoveAll(s.file(name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"pids", "logs", "managers"} {
		if err := os.Mkdir(s.file(name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// lockDirectory locks the directory, and fails if another sandbox uses it. The lock ends
// with the process that locked the directory.
func lockDirectory(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := os.ReadFile(path)
		file.Close()
		return nil, fmt.Errorf("%s is in use by the sandbox with pid %s: stop that sandbox (Ctrl-C in its terminal), or choose another directory (make sandbox SANDBOX_DIR=DIR)", dir, pid)
	}
	if err := file.Truncate(0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := file.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (s *Sandbox) newProcess(name, path string, args []string, probe func(context.Context) error) *Process {
	return &Process{
		name:    name,
		path:    path,
		args:    args,
		probe:   probe,
		logPath: filepath.Join(s.file("logs"), name+".log"),
		pidPath: filepath.Join(s.file("pids"), name),
	}
}

// reserve keeps a port until Stop. The caller holds mu, or no other goroutine uses the
// sandbox yet.
func (s *Sandbox) reserve() (*reservation, error) {
	port, err := reservePort()
	if err == nil {
		s.reservations = append(s.reservations, port)
	}
	return port, err
}

// Dir returns the directory of the sandbox.
func (s *Sandbox) Dir() string { return s.dir }

// Namespace returns the namespace of pools and allocations, butler-system. The sandbox
// creates it.
func (s *Sandbox) Namespace() string { return Namespace }

// Etcd returns the process of etcd.
func (s *Sandbox) Etcd() *Process { return s.etcd }

// EtcdAddress returns host:port of etcd. etcd speaks TLS, and accepts clients with the
// key pair etcd.crt and etcd.key of the directory pki.
func (s *Sandbox) EtcdAddress() string { return s.etcdPort.addr.String() }

// APIServer returns the process of kube-apiserver.
func (s *Sandbox) APIServer() *Process { return s.apiServer }

// Front returns the front through which the API server calls the webhooks. Tests can add
// endpoints other than the managers: a webhook server inside a test uses the key pair in
// WebhookCertDir.
func (s *Sandbox) Front() *Front { return s.front }

// WebhookCertDir returns the directory with tls.crt and tls.key. The API server trusts
// this certificate behind the front.
func (s *Sandbox) WebhookCertDir() string { return s.pki("webhook") }

// Managers returns the managers in the order of their start, including dead managers.
func (s *Sandbox) Managers() []*Manager {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.managers)
}

// Stop ends all processes, the managers first, so that they can hand over leadership
// while the API server runs. The files of the sandbox stay, except the pids and the file
// ready. A second call does nothing.
func (s *Sandbox) Stop() error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return nil
	}
	s.stopping = true
	close(s.stop)
	s.mu.Unlock()
	s.watchers.Wait()

	var err error
	if s.lock != nil { // otherwise the directory belongs to another sandbox
		err = os.RemoveAll(s.file("ready"))
	}
	var managers errgroup.Group
	err = errors.Join(err, s.etcd.signalIfThere(syscall.SIGCONT), s.apiServer.signalIfThere(syscall.SIGCONT)) // managers may need etcd and the API server for their shutdown
	for _, manager := range s.managers {
		managers.Go(func() error { return manager.stop(stopGrace) })
	}
	for _, process := range s.others {
		managers.Go(func() error { return process.stop(stopGrace) })
	}
	err = errors.Join(err, managers.Wait(), s.panics())
	err = errors.Join(err, s.apiServer.stop(stopGrace)) // before etcd, because the API server writes to etcd
	err = errors.Join(err, s.etcd.stop(stopGrace))
	if s.front != nil {
		err = errors.Join(err, s.front.Stop())
	}
	for _, link := range s.links {
		err = errors.Join(err, link.Stop())
	}
	for _, port := range s.reservations {
		err = errors.Join(err, port.release())
	}
	if s.lock == nil {
		return err
	}
	stale := []string{s.file("pids")}
	if s.temporary {
		stale = []string{s.dir}
	}
	for _, path := range stale {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return errors.Join(err, s.lock.Close())
}

func (s *Sandbox) isStopping() bool { return closed(s.stop) }

func (s *Sandbox) file(name string) string { return filepath.Join(s.dir, name) }

func (s *Sandbox) pki(name string) string { return filepath.Join(s.dir, "pki", name) }

func (s *Sandbox) logf(format string, args ...any) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	fmt.Fprintf(s.log, format+"\n", args...)
}
