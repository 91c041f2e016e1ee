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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
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

	mu        sync.Mutex
	held      keys  // as stored
	published bool  // once: the API servers know the authorities
	trouble   error // of the last turn
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
	s.client, s.live = mgr.GetClient(), mgr.GetAPIReader()
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
	s.trouble = err
	s.mu.Unlock()
	return reconcile.Result{RequeueAfter: next}, err
}

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
	now, t := s.Now(), terms{host: s.Host, life: s.Life}
	held := readKeys(secret.Data)
	if held.good(now, t) {
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
	due, err := held.renewed(now, t)
	if err != nil {
		return 0, err
	}
	data, err := due.data()
	if err != nil {
		return 0, err
	}
	if !maps.EqualFunc(data, secret.Data, bytes.Equal) {
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
