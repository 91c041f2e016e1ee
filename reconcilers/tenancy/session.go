package tenancy

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/kubeconfig"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// sessions are the tenants' sides, one for each TenantCluster with addresses. It is safe for concurrent use.
type sessions struct {
	*desk
	ctx   context.Context // of the process
	short *names          // those that wait for room in a pool

	mu     sync.Mutex
	all    map[types.NamespacedName]*session
	ending map[types.NamespacedName]*session // told to stop, the last one of a name
}

func newSessions(ctx context.Context, d *desk) *sessions {
	return &sessions{
		desk: d, ctx: ctx, short: newNames(),
		all: map[types.NamespacedName]*session{}, ending: map[types.NamespacedName]*session{},
	}
}

// ensure has a tenant served as it is now.
func (s *sessions) ensure(c *v1alpha1.TenantCluster, t tenants.Tenant, p tenants.Policy) {
	name := client.ObjectKeyFromObject(c)
	if c.Status.TenantNamespace == "" {
		return // it has no control plane yet
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Serving() {
		return // the term has ended meanwhile: all were stopped, or will be
	}
	one := s.all[name]
	if one != nil && (one.uid != c.UID || one.access.name.Namespace != c.Status.TenantNamespace) {
		s.end(name, one)
		one = nil
	}
	if one == nil {
		ctx, stop := context.WithCancel(s.ctx)
		one = &session{
			desk: s.desk, name: name, uid: c.UID, stop: stop, done: make(chan struct{}), nudged: make(chan struct{}, 1), short: s.short,
			access: access{secrets: s.secrets, name: types.NamespacedName{Namespace: c.Status.TenantNamespace, Name: kubeconfig.SecretName(c.Name)}},
		}
		before := s.ending[name]
		delete(s.ending, name)
		s.all[name] = one
		go func() {
			if before != nil {
				<-before.done
			}
			one.run(ctx)
			s.ended(name, one)
		}()
	}
	one.mu.Lock()
	if was := one.cluster; was != nil && (was.Generation != c.Generation || was.Status.Phase != c.Status.Phase) {
		one.moved = true
	}
	one.cluster, one.tenant, one.policy = c, t, p
	one.mu.Unlock()
	one.nudge()
}

// end tells a session to stop. The caller holds mu.
func (s *sessions) end(name types.NamespacedName, one *session) {
	one.stop()
	delete(s.all, name)
	s.ending[name] = one
}

// ended forgets a session that runs no more.
func (s *sessions) ended(name types.NamespacedName, one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending[name] == one {
		delete(s.ending, name)
	}
}

// stop ends the session of a tenant, if there is one.
func (s *sessions) stop(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.all[name]; one != nil {
		s.end(name, one)
	}
}

// stopAll ends all, and returns when none runs any more.
func (s *sessions) stopAll() {
	s.mu.Lock()
	for name, one := range s.all {
		s.end(name, one)
	}
	ending := s.ending
	s.ending = map[types.NamespacedName]*session{}
	s.mu.Unlock()
	for _, one := range ending {
		<-one.done
	}
}

// session is the tenant's side of one TenantCluster. All but what mu guards belongs to its goroutine.
type session struct {
	*desk
	name   types.NamespacedName
	uid    types.UID
	access access
	stop   context.CancelFunc
	done   chan struct{}
	nudged chan struct{} // has a value when there is something to look at
	short  *names

	mu      sync.Mutex
	cluster *v1alpha1.TenantCluster
	tenant  tenants.Tenant
	policy  tenants.Policy
	moved   bool // the TenantCluster has changed, and its control plane may be elsewhere

	down      time.Time // since when the tenant has not been reached; zero while it is
	told      bool      // that it is down
	services  map[types.UID]*waiting
	gone      map[string]time.Time // block -> since when its range has been missing from the tenant's pool
	failed    map[string]time.Time // block -> when it was first observed to have failed
	idles     map[string]idle      // block -> since when it is idle
	wrote     written
	announced bool // the tenant's L2Advertisement has named the pool
	refusal   refusal
	said      metav1.Condition // LoadBalancerIPsAvailable, as last written
	saidAt    time.Time
}

// nudge has a session look; it never blocks.
func (s *session) nudge() {
	select {
	case s.nudged <- struct{}{}:
	default:
	}
}

func (s *session) current() (*v1alpha1.TenantCluster, tenants.Tenant, tenants.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster, s.tenant, s.policy
}

// How long it waits between attempts to reach a tenant: a sixtieth of the outage, within these. So a short outage is over the moment that it
// ends, and a tenant that has been gone for long costs next to nothing.
const (
	shortestPause = time.Second
	longestPause  = 30 * time.Second
	// firstWrite is how long a write may take at first; after each failure twice as long.
	firstWrite = time.Second
	// quietFor is how long a tenant must be down until anybody is told.
	quietFor = 10 * time.Second
	// reachWithin is how long a tenant may take to show what it has.
	reachWithin = 20 * time.Second
)

func pauseAfter(outage time.Duration) time.Duration {
	return min(max(shortestPause, outage/60), longestPause)
}

// run keeps a connection to the tenant, and acts on what it sees, until ctx ends.
func (s *session) run(ctx context.Context) {
	defer close(s.done)
	s.metrics.begin(s.name)
	defer func() {
		s.short.put(s.name, false)
		s.metrics.forget(s.name)
	}()
	for ctx.Err() == nil {
		err := s.converse(ctx)
		if ctx.Err() != nil {
			return
		}
		now := s.Now()
		if s.down.IsZero() {
			s.down = now
			s.Log.Info("Tenant lost", "tenant", s.name, "reason", reasonOf(err))
		}
		s.Log.V(1).Info("Tenant not reached", "tenant", s.name, "reason", reasonOf(err))
		outage := now.Sub(s.down)
		pause := pauseAfter(outage)
		if s.access.demand {
			pause = 0
		}
		if outage >= quietFor && !s.told {
			s.told = true
			s.sayDown(ctx, err)
		}
		s.metrics.reachable(s.name, false)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// reasonOf is why a tenant is not reached, for the log. What a tenant's API server says in full stands in the condition.
func reasonOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return oneLine(err.Error())
}

// converse connects to the tenant and looks whenever something has changed, until the connection is lost.
func (s *session) converse(ctx context.Context) error {
	s.mu.Lock()
	if s.moved {
		s.moved, s.access.read = false, time.Time{}
	}
	s.mu.Unlock()
	outage, within := time.Duration(0), time.Duration(0)
	if !s.down.IsZero() {
		outage = s.Now().Sub(s.down)
		within = min(pauseAfter(outage), tenantTimeout)
	}
	config, version, err := s.access.settings(ctx, s.Now(), outage)
	if err != nil {
		return err
	}
	c, err := connect(ctx, config, version, s.MaxServices, within, s.nudge)
	if err != nil {
		return s.denied(version, err)
	}
	defer c.close()
	s.gone = map[string]time.Time{}
	s.wrote.version = 0 // what this connection shows is newer; and the tenant may have been restored, so that its versions are lower
	late := time.NewTimer(reachWithin)
	defer late.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	backoff := flow.NewBackoff(flow.FirstPause)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-c.lost:
			return s.denied(c.version, err)
		case <-late.C:
			if !c.reached() {
				return errors.New("the tenant's API server does not answer in full")
			}
		case <-s.nudged:
			s.gather(ctx)
		case <-next.C:
		}
		if !c.reached() {
			continue
		}
		s.up()
		cluster, _, _ := s.current()
		basis := flow.BasisOf(cluster)
		if wait := backoff.Wait(s.name, basis); wait > 0 {
			next.Reset(wait)
			continue
		}
		// An API server that has just started can keep a write for as long as one waits for it, and answer the next at once.
		c.within = min(firstWrite<<min(backoff.Failures(s.name), 10), tenantTimeout)
		at, err := s.look(ctx, c)
		switch {
		case apierrors.IsUnauthorized(err):
			return s.denied(c.version, err)
		case err != nil:
			at = s.Now().Add(backoff.Failed(ctrllog.IntoContext(ctx, s.Log.WithName("tenant")), s.name, basis, err))
		default:
			backoff.Succeeded(s.name)
		}
		next.Stop()
		if !at.IsZero() {
			next.Reset(max(at.Sub(s.Now()), 0))
		}
	}
}

// denied has the Secret read again where the tenant refuses the credentials, or shows others than it should.
func (s *session) denied(version string, err error) error {
	if stranger := (*tls.CertificateVerificationError)(nil); apierrors.IsUnauthorized(err) || errors.As(err, &stranger) {
		s.access.deny(version)
	}
	return err
}

// What changes together is looked at together, such as Services of one manifest: until nothing comes for a moment, but not for long.
const (
	gatherQuiet = 100 * time.Millisecond
	gatherMost  = 400 * time.Millisecond
)

func (s *session) gather(ctx context.Context) {
	most := time.After(gatherMost)
	for {
		select {
		case <-ctx.Done():
			return
		case <-most:
			return
		case <-time.After(gatherQuiet):
			return
		case <-s.nudged:
		}
	}
}

// up notes that the tenant is reached.
func (s *session) up() {
	s.metrics.reachable(s.name, true)
	s.down = time.Time{}
	if s.told {
		s.told = false
		cluster, _, _ := s.current()
		s.events.reachable(cluster)
	}
}
