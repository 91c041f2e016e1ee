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

	"butlerlabs.dev/ipam/webhooks/servertime"
)

// fieldManager is the name under which the caBundle is written.
const fieldManager = "butler-ipam-certificates"

const (
	// MinLife is the shortest life of a certificate: of a shorter one, what is left to settle and to renew is within what an API server
	// may take to learn of an authority.
	MinLife = time.Minute
	// longestWait is after how long everything is looked at again in any case, for clocks that are set.
	longestWait = time.Hour
	// conflictWait is when a replica that was not the first looks again; it hears of what the first wrote before that.
	conflictWait = time.Second
	// disagreedWait is when a replica whose clock is not the API server's looks again.
	disagreedWait = time.Minute
)

// SelfManagedConfig is what SelfManaged stands on.
type SelfManagedConfig struct {
	// Secret holds authorities and certificate. It must exist; at the first start it is empty.
	Secret types.NamespacedName
	// Host is the name by which API servers call the webhooks: SERVICE.NAMESPACE.svc.
	Host string
	// Mutating and Validating are the names of the webhook configurations that get the authorities, as far as they are there.
	Mutating, Validating []string
	// Life of a certificate, at least MinLife. It is renewed when a third of it is left; an authority lives ten times as long.
	Life time.Duration
	Now  func() time.Time
	Log  logr.Logger
}

// SelfManaged makes and renews the certificate without anybody's help: see the package's comment.
type SelfManaged struct {
	SelfManagedConfig
	client client.Client
	live   client.Reader
	server *servertime.Clock // as of the last response to live

	// Of the controller, which takes one turn after the other.
	repairs  int       // writes that replaced what could not be served, in a row
	repaired time.Time // the last of them

	mu        sync.Mutex
	held      keys  // as stored
	published bool  // once: the API servers know the authorities
	trouble   error // of the last turn
}

// clockError says that this machine's clock and the API server's differ, so that this replica does not know what is due.
type clockError struct{ own, server time.Time }

func (e *clockError) Error() string {
	return fmt.Sprintf("the clock of this machine (%s) and the API server's (%s) differ by more than %s: this replica renews no certificate until they agree",
		e.own.UTC().Format(time.RFC3339), e.server.UTC().Format(time.RFC3339), disagreement)
}

// NewSelfManaged serves nothing until its controller has run. SetupWithManager adds that to a manager that has AddToScheme's types and
// Caches.
func NewSelfManaged(c SelfManagedConfig) *SelfManaged { return &SelfManaged{SelfManagedConfig: c} }

// AddToScheme adds the types that SelfManaged reads and writes.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(corev1.AddToScheme(s), admissionv1.AddToScheme(s))
}

// Caches narrow the manager's cache down to the Secret, as its rights are. Webhook configurations it may read whosever they are: a watch takes
// one name at most.
func (s *SelfManaged) Caches() map[client.Object]cache.ByObject {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{s.Secret.Namespace: {FieldSelector: named(s.Secret.Name)}}},
	}
}

// Pauses between attempts that fail, each twice the one before.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// SetupWithManager implements Source.
func (s *SelfManaged) SetupWithManager(mgr manager.Manager) error {
	config := rest.CopyConfig(mgr.GetConfig())
	s.server = servertime.New(s.Now)
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
			// No event says that a right was granted, and without certificates nothing is served.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(s)
}

// GetCertificate implements Source.
func (s *SelfManaged) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held.serving == nil {
		return nil, fmt.Errorf("there is no certificate in Secret %s yet", s.Secret)
	}
	return s.held.serving, nil
}

// Authorities implements Source.
func (s *SelfManaged) Authorities() *x509.CertPool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.pool()
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

// Check is a readiness probe: since this replica has started, the API servers have learned once whom to trust.
func (s *SelfManaged) Check(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published {
		return nil
	}
	return errors.Join(errors.New("the webhook configurations have no caBundle yet"), s.trouble)
}

// Reconcile takes one turn: it serves what is stored, has the API servers trust what is stored, and only then stores what is due.
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

// errUnusable says that what was stored in place of something that could not be served cannot be served either.
var errUnusable = errors.New("what is stored cannot be served, though it was replaced a moment ago: look for what else writes the Secret, and at the clocks")

// clocks are this machine's time and the API server's, as of the last response. They are the same where no response had a Date.
func (s *SelfManaged) clocks() (own, server time.Time) {
	own = s.Now()
	ahead, _ := s.server.Ahead()
	return own, own.Add(ahead)
}

// repairAfter is for how long a write has to wait that replaces what cannot be served. Something else may undo each of them.
func (s *SelfManaged) repairAfter(now time.Time) time.Duration {
	if s.repairs == 0 || now.Sub(s.repaired) > 2*lastRetry {
		s.repairs = 0
		return 0
	}
	return s.repaired.Add(min(firstRetry<<min(s.repairs, 16), lastRetry)).Sub(now)
}

// turn returns when the next one is due; with an error, when it is tried again, zero for growing pauses.
func (s *SelfManaged) turn(ctx context.Context) (next time.Duration, err error) {
	configurations, err := s.configurations(ctx)
	if err != nil {
		return 0, err
	}
	// Read after the configurations, from the API server itself: whatever authorities stand there, this is not older.
	var secret corev1.Secret
	switch err := s.live.Get(ctx, s.Secret, &secret); {
	case apierrors.IsNotFound(err):
		return 0, fmt.Errorf("there is no Secret %s: install it again, empty, with what installed the manager", s.Secret)
	case err != nil:
		return 0, err
	}
	own, now := s.clocks()
	agree, t := now.Sub(own).Abs() <= disagreement, terms{host: s.Host, life: s.Life}
	held := readKeys(secret.Data)
	// The API servers judge a certificate. Where the clocks disagree either may be wrong: what one of them accepts is served, and is not replaced.
	good := held.good(now, t) || !agree && held.good(own, t)
	if good {
		s.serve(held)
		bundle, err := held.bundle()
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
	if !agree && (good || held.contested(own, now)) {
		return disagreedWait, &clockError{own, now}
	}
	due, err := held.renewed(now, t)
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

func (s *SelfManaged) serve(held keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
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
	clients func() []*admissionv1.WebhookClientConfig // within the object
}

// configurations reads those that there are.
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

// publish has the API servers trust a bundle of authorities.
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
