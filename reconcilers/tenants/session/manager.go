package session

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/allocations"
	"butlerlabs.dev/ipam/reconcilers/tenants/kubeconfig"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/reconcilers/tenants/remote"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// Deps are the dependencies of sessions.
type Deps struct {
	Client      client.Client
	Secrets     corev1client.SecretsGetter // of kubeconfigs
	Platform    *platform.Cluster
	Allocations allocations.Store
	Status      report.StatusWriter
	Events      report.Events
	Metrics     *report.Metrics
	Log         logr.Logger

	Timing plan.Timing
	// MaxServices bounds the Services of type LoadBalancer of one tenant that are read.
	MaxServices int
	// Leads reports whether this replica leads.
	Leads func() bool
	// ProveLeads returns nil if this replica led when the call began.
	ProveLeads func(context.Context) error
	Now        func() time.Time // clock of durations
	Wall       func() time.Time // clock of times in objects
}

// Manager starts and stops sessions. Safe for concurrent use. Invariant: at most one
// session of a name runs at a time; the next session waits for the end of the previous
// session.
type Manager struct {
	Deps
	ctx     context.Context // ends with the process
	waiting *allocations.WaitingTenants

	mu       sync.Mutex
	running  map[types.NamespacedName]*session
	stopping map[types.NamespacedName]*session // the last stopped session of a name, until its goroutine ends
}

// NewManager returns a manager without sessions, whose sessions end with ctx.
func NewManager(ctx context.Context, d Deps) *Manager {
	return &Manager{
		Deps: d, ctx: ctx, waiting: allocations.NewWaitingTenants(),
		running: map[types.NamespacedName]*session{}, stopping: map[types.NamespacedName]*session{},
	}
}

// WaitingTenants returns the tenants whose growth waits for room in a pool.
func (m *Manager) WaitingTenants() *allocations.WaitingTenants { return m.waiting }

// Ensure starts the session of a tenant or passes it the new state of the TenantCluster.
// A session is replaced when the UID or the namespace of the control plane has changed. A
// tenant without a control plane gets no session, a replica that does not lead starts
// none.
func (m *Manager) Ensure(c *v1alpha1.TenantCluster, t plan.Tenant, p plan.Policy) {
	name := client.ObjectKeyFromObject(c)
	if c.Status.TenantNamespace == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.Leads() {
		return // the term ended meanwhile: StopAll was called or will be
	}
	s := m.running[name]
	if s != nil && (s.uid != c.UID || s.credentials.Namespace() != c.Status.TenantNamespace) {
		m.stopLocked(name, s)
		s = nil
	}
	if s == nil {
		s = m.startLocked(name, c)
	}
	s.setCluster(c, t, p)
	s.trigger()
}

// startLocked starts a session. The caller holds mu.
func (m *Manager) startLocked(name types.NamespacedName, c *v1alpha1.TenantCluster) *session {
	ctx, cancel := context.WithCancel(m.ctx)
	s := &session{
		Deps: m.Deps, name: name, uid: c.UID, cancel: cancel, done: make(chan struct{}), triggered: make(chan struct{}, 1), waiting: m.waiting,
		lines:       rate.NewLimiter(rate.Every(lineInterval), lineBurst),
		credentials: remote.NewCredentials(m.Secrets, types.NamespacedName{Namespace: c.Status.TenantNamespace, Name: kubeconfig.SecretName(c.Name)}),
	}
	before := m.stopping[name]
	delete(m.stopping, name)
	m.running[name] = s
	go func() {
		if before != nil {
			<-before.done
		}
		s.run(ctx)
		m.removeStopped(name, s)
	}()
	return s
}

// stopLocked cancels a session. The caller holds mu.
func (m *Manager) stopLocked(name types.NamespacedName, s *session) {
	s.cancel()
	delete(m.running, name)
	m.stopping[name] = s
}

func (m *Manager) removeStopped(name types.NamespacedName, s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping[name] == s {
		delete(m.stopping, name)
	}
}

// Stop cancels the session of a tenant, if one runs, and does not wait for its end.
func (m *Manager) Stop(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.running[name]; s != nil {
		m.stopLocked(name, s)
	}
}

// StopAll cancels all sessions and returns when their goroutines have ended.
func (m *Manager) StopAll() {
	m.mu.Lock()
	for name, s := range m.running {
		m.stopLocked(name, s)
	}
	stopping := m.stopping
	m.stopping = map[types.NamespacedName]*session{}
	m.mu.Unlock()
	for _, s := range stopping {
		<-s.done
	}
}
