package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fieldManager is the field manager of writes to the caBundle and the Secret.
const fieldManager = "butler-ipam-certificates"

const (
	// MinLife is the shortest validity of a certificate. With a shorter validity, the
	// times for settling and renewal are within the delay with which an API server may
	// observe a new authority.
	MinLife = time.Minute
	// longestWait bounds the time between two turns, because a clock may be set.
	longestWait = time.Hour
	// conflictWait is the time to the next turn after a write conflict. The winning write
	// is usually observed earlier.
	conflictWait = time.Second
	// disagreedWait is the time to the next turn while the clocks of this machine and the
	// API server disagree.
	disagreedWait = time.Minute
)

// SelfManagedConfig configures SelfManaged.
type SelfManagedConfig struct {
	// Secret contains the authorities and the certificate. The Secret must exist; at the
	// first start it is empty.
	Secret types.NamespacedName
	// Host is the name by which API servers call the webhooks: SERVICE.NAMESPACE.svc.
	Host string
	// Mutating and Validating are the names of the webhook configurations whose caBundle
	// gets the authorities. Missing configurations are skipped.
	Mutating, Validating []string
	// Life is the validity of a certificate, at least MinLife. A certificate is renewed
	// when a third of Life is left. An authority is valid for 10 * Life.
	Life time.Duration
	Now  func() time.Time
	// NewServerClock returns an estimate of the API server's clock that has observed no
	// response yet.
	NewServerClock func() ServerClock
	Log            logr.Logger
}

// ServerClock estimates the API server's clock from responses. It is safe for concurrent
// use.
type ServerClock interface {
	// Wrap returns a transport that observes the responses of another transport.
	Wrap(http.RoundTripper) http.RoundTripper
	// Now returns the estimated time of the API server.
	Now() time.Time
	// Ahead returns by how much the API server's clock is ahead of this machine's. known
	// is false before the first response.
	Ahead() (by time.Duration, known bool)
}

// SelfManaged is a Source that issues and renews the certificate, as described in the
// package documentation.
type SelfManaged struct {
	SelfManagedConfig
	client client.Client
	live   client.Reader
	server ServerClock // as of the last response to live

	// Used by the controller alone, which runs one turn at a time.
	repairs  int       // consecutive writes that replaced an unusable certificate
	repaired time.Time // time of the last of these writes

	mu        sync.Mutex
	stored    keys  // as stored in the Secret
	published bool  // the webhook configurations had the authorities at least once since the start
	trouble   error // of the last turn
}

// clockError means that the clocks of this machine and the API server differ, so this
// replica cannot decide what is due.
type clockError struct{ own, server time.Time }

func (e *clockError) Error() string {
	return fmt.Sprintf("the clock of this machine (%s) and the API server's (%s) differ by more than %s: this replica renews no certificate until they agree",
		e.own.UTC().Format(time.RFC3339), e.server.UTC().Format(time.RFC3339), disagreement)
}

// NewSelfManaged returns a SelfManaged without a certificate: the controller reads or
// issues the certificate. SetupWithManager needs a manager with the types of AddToScheme
// and the cache options of Caches.
func NewSelfManaged(c SelfManagedConfig) *SelfManaged { return &SelfManaged{SelfManagedConfig: c} }

// AddToScheme adds the types that SelfManaged reads and writes.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(corev1.AddToScheme(s), admissionv1.AddToScheme(s))
}

// Caches restricts the manager's cache to the Secret, because the manager may read no
// other. Webhook configurations are not restricted: a watch selects at most one name.
func (s *SelfManaged) Caches() map[client.Object]cache.ByObject {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{s.Secret.Namespace: {FieldSelector: named(s.Secret.Name)}}},
	}
}

// Backoff after failed attempts: it doubles from firstRetry to lastRetry.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// SetupWithManager implements Source.
func (s *SelfManaged) SetupWithManager(mgr manager.Manager) error {
	config := rest.CopyConfig(mgr.GetConfig())
	s.server = s.NewServerClock()
	config.Wrap(s.server.Wrap)
	live, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	s.client, s.live = mgr.GetClient(), live
	everywhere := false
	turn := func(names []string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if !slices.Contains(names, o.GetName()) {
				return nil
			}
			return []reconcile.Request{{NamespacedName: s.Secret}}
		})
	}
	return builder.ControllerManagedBy(mgr).Named("certificates").
		For(&corev1.Secret{}).
		Watches(&admissionv1.MutatingWebhookConfiguration{}, turn(s.Mutating)).
		Watches(&admissionv1.ValidatingWebhookConfiguration{}, turn(s.Validating)).
		WithOptions(controller.Options{
			NeedLeaderElection: &everywhere,
			// No event reports that a permission was granted, and without a certificate
			// no call is served.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(s)
}

// GetCertificate implements Source.
func (s *SelfManaged) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored.serving == nil {
		return nil, fmt.Errorf("there is no certificate in Secret %s yet", s.Secret)
	}
	return s.stored.serving, nil
}

// Authorities implements Source.
func (s *SelfManaged) Authorities() *x509.CertPool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored.pool()
}

// Trouble implements Renewal.
func (s *SelfManaged) Trouble() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble != nil {
		return "the manager cannot keep its certificate: " + s.trouble.Error(), true
	}
	return "", s.published
}

// Check is a readiness check: it passes once the webhook configurations had the
// authorities since this replica started.
func (s *SelfManaged) Check(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published {
		return nil
	}
	return errors.Join(errors.New("the webhook configurations have no caBundle yet"), s.trouble)
}

// Reconcile runs one turn: it serves the stored certificate, publishes the stored
// authorities in the webhook configurations, and only then stores renewals that are due.
func (s *SelfManaged) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	next, err := s.turn(ctx)
	if apierrors.IsConflict(err) {
		s.Log.V(1).Info("Another replica was first", "reason", err.Error())
		return reconcile.Result{RequeueAfter: conflictWait}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.trouble
	if s.trouble = err; err == nil || next == 0 {
		return reconcile.Result{RequeueAfter: next}, err
	}
	if before == nil {
		s.Log.Info("Certificates not renewed", "reason", err.Error())
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// errUnusable means that the replacement of an unusable certificate is unusable too.
var errUnusable = errors.New("the stored certificate cannot be served, though the Secret was replaced a moment ago: look for another writer of the Secret, and check the clocks")

// clocks returns the time of this machine and the time of the API server as of its last
// response. Both are equal until a response had a Date.
func (s *SelfManaged) clocks() (own, server time.Time) {
	own = s.Now()
	ahead, _ := s.server.Ahead()
	return own, own.Add(ahead)
}

// repairAfter returns the backoff before the next write that replaces an unusable
// certificate. Another program may revert each of these writes.
func (s *SelfManaged) repairAfter(now time.Time) time.Duration {
	if s.repairs == 0 || now.Sub(s.repaired) > 2*lastRetry {
		s.repairs = 0
		return 0
	}
	return s.repaired.Add(min(firstRetry<<min(s.repairs, 16), lastRetry)).Sub(now)
}

// turn runs one turn and returns the time to the next turn. With an error and next == 0,
// the controller retries with exponential backoff.
func (s *SelfManaged) turn(ctx context.Context) (next time.Duration, err error) {
	configurations, err := s.configurations(ctx)
	if err != nil {
		return 0, err
	}
	// Read after the configurations and from the API server, so the Secret is not older
	// than the authorities in the configurations.
	var secret corev1.Secret
	switch err := s.live.Get(ctx, s.Secret, &secret); {
	case apierrors.IsNotFound(err):
		return 0, fmt.Errorf("there is no Secret %s: install it again, empty, with what installed the manager", s.Secret)
	case err != nil:
		return 0, err
	}
	own, now := s.clocks()
	agree, t := now.Sub(own).Abs() <= disagreement, terms{host: s.Host, life: s.Life}
	stored := readKeys(secret.Data)
	// API servers verify the certificate. While the clocks disagree, either may be wrong:
	// a certificate valid by one clock is served and not replaced.
	good := stored.good(now, t) || !agree && stored.good(own, t)
	if good {
		s.serve(stored)
		bundle, err := stored.bundle()
		if err != nil {
			return 0, err
		}
		for _, c := range configurations {
			if err := c.publish(ctx, s.client, bundle); err != nil {
				return 0, err
			}
		}
		s.markPublished()
	}
	if !agree && (good || stored.contested(own, now)) {
		return disagreedWait, &clockError{own, now}
	}
	due, err := stored.renewed(now, t)
	if err != nil {
		return 0, err
	}
	data, err := due.data()
	if err != nil {
		return 0, err
	}
	if !maps.EqualFunc(data, secret.Data, bytes.Equal) {
		if !good {
			if wait := s.repairAfter(own); wait > 0 {
				return wait, errUnusable
			}
			s.repairs, s.repaired = s.repairs+1, own
		}
		secret.Data = data
		if err := s.client.Update(ctx, &secret, client.FieldOwner(fieldManager)); err != nil {
			return 0, err
		}
		s.Log.Info("Certificates renewed", "secret", s.Secret, "authorities", len(due.authorities), "expires", due.serving.Leaf.NotAfter)
	}
	return min(due.nextTurn(now, t).Sub(now), longestWait), nil
}

func (s *SelfManaged) serve(stored keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = stored
}

func (s *SelfManaged) markPublished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = true
}

// configuration is a webhook configuration of either kind.
type configuration struct {
	name    string
	object  client.Object
	clients func() []*admissionv1.WebhookClientConfig // pointers into object
}

// configurations reads the webhook configurations that exist.
func (s *SelfManaged) configurations(ctx context.Context) (all []configuration, err error) {
	for _, name := range s.Mutating {
		o := &admissionv1.MutatingWebhookConfiguration{}
		all = append(all, configuration{name, o, func() (clients []*admissionv1.WebhookClientConfig) {
			for i := range o.Webhooks {
				clients = append(clients, &o.Webhooks[i].ClientConfig)
			}
			return clients
		}})
	}
	for _, name := range s.Validating {
		o := &admissionv1.ValidatingWebhookConfiguration{}
		all = append(all, configuration{name, o, func() (clients []*admissionv1.WebhookClientConfig) {
			for i := range o.Webhooks {
				clients = append(clients, &o.Webhooks[i].ClientConfig)
			}
			return clients
		}})
	}
	return slices.DeleteFunc(all, func(c configuration) bool {
		found := s.client.Get(ctx, types.NamespacedName{Name: c.name}, c.object)
		if apierrors.IsNotFound(found) {
			s.Log.V(1).Info("There is no webhook configuration to publish authorities in", "name", c.name)
			return true
		}
		err = errors.Join(err, found)
		return false
	}), err
}

// publish writes a bundle of authorities to the caBundle of each webhook, unless the
// bundle is there already.
func (c configuration) publish(ctx context.Context, to client.Writer, bundle []byte) error {
	before := c.object.DeepCopyObject().(client.Object)
	changed := false
	for _, config := range c.clients() {
		if !bytes.Equal(config.CABundle, bundle) {
			config.CABundle, changed = bundle, true
		}
	}
	if !changed {
		return nil
	}
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	return client.IgnoreNotFound(to.Patch(ctx, c.object, patch, client.FieldOwner(fieldManager)))
}
