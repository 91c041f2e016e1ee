package session

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/tenants/allocations"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/remote"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// session serves one TenantCluster. Fields not guarded by mu are constant or belong to
// the goroutine of the session.
type session struct {
	Deps
	name        types.NamespacedName
	uid         types.UID
	cancel      context.CancelFunc
	done        chan struct{}
	triggered   chan struct{} // buffered: has a value when a decision is due
	waiting     *allocations.WaitingTenants
	credentials remote.Credentials

	mu              sync.Mutex
	cluster         *v1alpha1.TenantCluster
	tenant          plan.Tenant
	policy          plan.Policy
	endpointChanged bool // generation or phase has changed since the last connection: the control plane may have moved

	lostAt         time.Time // zero while the tenant is reached
	outageReported bool
	observed       observations
	written        writtenPool
	lines          *rate.Limiter // log lines of boundedEvents
	advertised     bool          // the tenant's L2Advertisement has named the pool
	// advertisementDrift: a change by another writer was recorded, and the advertisement
	// has not been observed to be correct since.
	advertisementDrift bool
	denial             denial
	denials            adoptionDenials
	available          writtenCondition // LoadBalancerIPsAvailable
	adopted            writtenCondition // AddressesAdopted
}

// trigger makes the session decide. It never blocks.
func (s *session) trigger() {
	select {
	case s.triggered <- struct{}{}:
	default:
	}
}

// setCluster passes the state of the TenantCluster to the goroutine of the session.
func (s *session) setCluster(c *v1alpha1.TenantCluster, t plan.Tenant, p plan.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.cluster; before != nil && (before.Generation != c.Generation || before.Status.Phase != c.Status.Phase) {
		s.endpointChanged = true
	}
	s.cluster, s.tenant, s.policy = c, t, p
}

func (s *session) currentCluster() (*v1alpha1.TenantCluster, plan.Tenant, plan.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster, s.tenant, s.policy
}

const (
	// Pauses between attempts to connect: a sixtieth of the outage within these bounds. A
	// short outage ends without delay, and a tenant after a long outage costs little.
	shortestPause = time.Second
	longestPause  = 30 * time.Second
	// firstWriteTimeout bounds a write at first. It doubles after each failure, up to
	// remote.CallTimeout.
	firstWriteTimeout = time.Second
	// reportAfter is the duration after which condition and event report an outage.
	reportAfter = 10 * time.Second
)

func pauseAfter(outage time.Duration) time.Duration {
	return min(max(shortestPause, outage/60), longestPause)
}

// run connects to the tenant again and again until ctx ends.
func (s *session) run(ctx context.Context) {
	defer close(s.done)
	s.Metrics.InitializeCounters(s.name)
	defer func() {
		s.waiting.SetWaiting(s.name, false)
		s.Metrics.DeleteSeries(s.name)
	}()
	for ctx.Err() == nil {
		err := s.serveConnection(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := s.recordOutage(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// recordOutage logs and reports why the tenant is lost, and returns the pause before the
// next attempt.
func (s *session) recordOutage(ctx context.Context, err error) time.Duration {
	now := s.Now()
	if s.lostAt.IsZero() {
		s.lostAt = now
		s.Log.Info("Tenant lost", "tenant", s.name, "reason", outageReason(err))
	}
	s.Log.V(1).Info("Tenant not reached", "tenant", s.name, "reason", outageReason(err))
	outage := now.Sub(s.lostAt)
	pause := pauseAfter(outage)
	if s.credentials.JustRejected() {
		pause = 0 // the Secret may have other credentials
	}
	if outage >= reportAfter && !s.outageReported {
		s.outageReported = true
		s.reportOutage(ctx, err)
	}
	s.Metrics.SetReachable(s.name, false)
	return pause
}

// outageReason returns the reason of an error for the log. The whole text, which the
// tenant may have written, is in the condition.
func outageReason(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return report.ShortenText(err.Error())
}

// recordReached ends an outage.
func (s *session) recordReached() {
	s.Metrics.SetReachable(s.name, true)
	s.lostAt = time.Time{}
	if s.outageReported {
		s.outageReported = false
		cluster, _, _ := s.currentCluster()
		s.Events.RecordReachable(cluster)
	}
}

// connect makes a connection with the current credentials. After an outage the API server
// is probed first.
func (s *session) connect(ctx context.Context) (*remote.Connection, error) {
	s.mu.Lock()
	if s.endpointChanged {
		s.endpointChanged = false
		s.credentials.Invalidate()
	}
	s.mu.Unlock()
	outage, probeTimeout := time.Duration(0), time.Duration(0)
	if !s.lostAt.IsZero() {
		outage = s.Now().Sub(s.lostAt)
		probeTimeout = min(pauseAfter(outage), remote.CallTimeout)
	}
	config, version, err := s.credentials.Config(ctx, s.Now(), outage)
	if err != nil {
		return nil, err
	}
	c, err := remote.Connect(ctx, config, version, remote.Options{MaxServices: s.MaxServices, ProbeTimeout: probeTimeout, OnChanged: s.trigger})
	if err != nil {
		return nil, s.rejectCredentials(version, err)
	}
	s.observed.missingSince = map[string]time.Time{}
	s.written.version = 0 // the mirror starts with a list that is newer; a tenant restored from a backup has lower versions
	return c, nil
}

// rejectCredentials makes the session read the Secret again after an error of wrong
// credentials: rejected by the tenant, or a CA that does not match.
func (s *session) rejectCredentials(version string, err error) error {
	if wrongCA := (*tls.CertificateVerificationError)(nil); apierrors.IsUnauthorized(err) || errors.As(err, &wrongCA) {
		s.credentials.RejectVersion(version)
	}
	return err
}

// serveConnection connects to the tenant and decides after each change, until the
// connection is lost.
func (s *session) serveConnection(ctx context.Context) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	syncTimeout := time.NewTimer(remote.SyncTimeout)
	defer syncTimeout.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	backoff := flow.NewBackoff(flow.FirstPause)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-c.Lost():
			return s.rejectCredentials(c.Version(), err)
		case <-syncTimeout.C:
			if !c.IsReached() {
				return errors.New("the tenant's API server does not answer in full")
			}
		case <-s.triggered:
			s.debounce(ctx)
		case <-next.C:
		}
		if !c.IsReached() {
			continue
		}
		s.recordReached()
		cluster, _, _ := s.currentCluster()
		basis := flow.BasisOf(cluster)
		if wait := backoff.Wait(s.name, basis); wait > 0 {
			next.Reset(wait)
			continue
		}
		// An API server that has just started may hold a write until its timeout, and
		// answer the next at once.
		c.WriteTimeout = min(firstWriteTimeout<<min(backoff.Failures(s.name), 10), remote.CallTimeout)
		at, err := s.decide(ctx, c)
		switch {
		case apierrors.IsUnauthorized(err):
			return s.rejectCredentials(c.Version(), err)
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

// Changes at about the same time, for example the Services of one manifest, lead to one
// decision: after debounceQuiet without a change, at the latest after debounceMax.
const (
	debounceQuiet = 100 * time.Millisecond
	debounceMax   = 400 * time.Millisecond
)

func (s *session) debounce(ctx context.Context) {
	latest := time.After(debounceMax)
	for {
		select {
		case <-ctx.Done():
			return
		case <-latest:
			return
		case <-time.After(debounceQuiet):
			return
		case <-s.triggered:
		}
	}
}
