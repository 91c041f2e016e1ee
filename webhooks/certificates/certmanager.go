package certificates

import (
	"context"
	"fmt"
	"sync"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/cert-manager/cert-manager/pkg/client/clientset/versioned"
	informers "github.com/cert-manager/cert-manager/pkg/client/informers/externalversions/certmanager/v1"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// lookEvery is the interval at which overdue renewals are looked for: no event
	// reports them.
	lookEvery = 30 * time.Second
	// longestGrace bounds the delay after which a renewal is overdue.
	longestGrace = time.Hour
)

// CertManager monitors the Certificate by which cert-manager renews the manager's
// certificate. CertManager is read-only: a certificate that cert-manager cannot renew is
// served until it expires.
type CertManager struct {
	certificate types.NamespacedName
	informer    cache.SharedIndexInformer
	now         func() time.Time
	log         logr.Logger

	mu      sync.Mutex
	trouble string
	known   bool
	absent  bool // the API of cert-manager is not installed
}

// NewCertManager returns a monitor of one Certificate, which Start runs. cert-manager may
// be installed later than the manager.
func NewCertManager(config *rest.Config, certificate types.NamespacedName, now func() time.Time, log logr.Logger) (*CertManager, error) {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	w := &CertManager{certificate: certificate, now: now, log: log.WithValues("certificate", certificate)}
	only := fields.OneTermEqualSelector("metadata.name", certificate.Name).String()
	w.informer = informers.NewFilteredCertificateInformer(client, certificate.Namespace, 0, nil, func(o *metav1.ListOptions) { o.FieldSelector = only })
	return w, w.informer.SetWatchErrorHandlerWithContext(w.failed)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica reports the
// state of its certificate.
func (*CertManager) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (w *CertManager) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	tell := func(any) {
		select {
		case changed <- struct{}{}:
		default: // a look is pending already
		}
	}
	handlers := cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell}
	if _, err := w.informer.AddEventHandler(handlers); err != nil {
		return err
	}
	go w.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
		return nil
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		w.look()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// failed handles the error of a list or watch. The informer repeats the attempt after at
// most 30 s.
func (w *CertManager) failed(ctx context.Context, reflector *cache.Reflector, err error) {
	if !apierrors.IsNotFound(err) {
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.absent {
		w.absent = true
		w.log.Info("cert-manager is not installed: its Certificate is watched when it is")
	}
}

// look reads the state of the Certificate, and logs each change of the state.
func (w *CertManager) look() {
	trouble := fmt.Sprintf("Certificate %s does not exist", w.certificate)
	if object, exists, _ := w.informer.GetStore().GetByKey(w.certificate.String()); exists {
		trouble = troubleOf(object.(*cmv1.Certificate), w.now())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known && trouble == w.trouble {
		return
	}
	w.trouble, w.known = trouble, true
	if trouble == "" {
		w.log.Info("Certificate is Ready")
	} else {
		w.log.Info("Certificate is not renewed", "reason", trouble)
	}
}

// Trouble implements Renewal.
func (w *CertManager) Trouble() (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble, w.known
}

// troubleOf returns the problem of a Certificate at a time, or "" if there is no problem.
func troubleOf(c *cmv1.Certificate, now time.Time) string {
	ready, reason := false, "cert-manager has not looked at it yet"
	for _, condition := range c.Status.Conditions {
		if condition.Type == cmv1.CertificateConditionReady {
			ready, reason = condition.Status == cmmeta.ConditionTrue, fmt.Sprintf("%s: %s", condition.Reason, condition.Message)
		}
	}
	name := fmt.Sprintf("Certificate %s/%s", c.Namespace, c.Name)
	until := ""
	if c.Status.NotAfter != nil {
		until = ", and ends at " + c.Status.NotAfter.UTC().Format(time.RFC3339)
	}
	switch renewal := c.Status.RenewalTime; {
	case !ready:
		return fmt.Sprintf("%s is not Ready (%s)%s", name, reason, until)
	case renewal != nil && now.After(renewal.Add(grace(c))):
		return fmt.Sprintf("%s should have been renewed at %s%s: see its CertificateRequests, and its issuer", name, renewal.UTC().Format(time.RFC3339), until)
	}
	return ""
}

// grace returns the delay after which a renewal is overdue: a tenth of the validity left
// at the renewal time, at most longestGrace.
func grace(c *cmv1.Certificate) time.Duration {
	if c.Status.NotAfter == nil {
		return longestGrace
	}
	return min(c.Status.NotAfter.Sub(c.Status.RenewalTime.Time)/10, longestGrace)
}
