package tenancy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/reconcilers/kubeconfig"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Bounds of the traffic with one tenant, which may be slow, broken or hostile.
const (
	tenantQPS     = 20
	tenantBurst   = 40
	tenantTimeout = 5 * time.Second // of a call, and of what precedes the answer to a watch
	tenantAnswer  = 4 << 20         // bytes of an answer, or of an event of a watch: an object that etcd takes has 1.5 MiB
	tenantMemory  = 16 << 20        // bytes that it may take once it is decoded
)

// How often the Secret with a tenant's kubeconfig is read, before use: rarely where it has been of no use for long.
const (
	readEvery    = 30 * time.Second
	missingEvery = 2 * time.Second
	rarely       = 10 * time.Minute
)

// accessError says that a tenant's kubeconfig is of no use, which waiting alone does not mend.
type accessError struct{ error }

func (e accessError) Unwrap() error { return e.error }

// access is how a tenant is reached, from its Secret. It belongs to the tenant's session.
type access struct {
	secrets corev1client.SecretsGetter
	name    types.NamespacedName

	read    time.Time // when the Secret was last read
	version string    // its resourceVersion, "" where there is none
	config  *rest.Config
	fault   error
	refused string // the version whose credentials the tenant has refused
	demand  bool   // that the Secret be read before the next use
}

// settings gives the client configuration and its version. outage is for how long the tenant has not been reached.
func (a *access) settings(ctx context.Context, now time.Time, outage time.Duration) (*rest.Config, string, error) {
	every := readEvery
	switch {
	case a.version == "":
		every = min(max(missingEvery, outage/10), rarely)
	case outage > 2*readEvery:
		every = rarely // a change of the TenantCluster has it read at once
	}
	if a.read.IsZero() || now.Sub(a.read) >= every || a.demand {
		if err := a.refresh(ctx, now); err != nil && a.version == "" {
			return nil, "", err // else what was read before is as good as any
		}
	}
	return a.config, a.version, a.fault
}

// deny notes that a tenant does not accept the credentials of a version: the Secret is read again at once.
func (a *access) deny(version string) {
	if a.refused != version {
		a.refused, a.demand = version, true
	}
}

func (a *access) refresh(ctx context.Context, now time.Time) error {
	a.demand = false
	secret, err := a.secrets.Secrets(a.name.Namespace).Get(ctx, a.name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		a.read, a.version, a.config, a.fault = now, "", nil, accessError{fmt.Errorf("kubeconfig: %w", err)}
		return nil
	case err != nil:
		return err
	}
	a.read = now
	if a.version == secret.ResourceVersion {
		return nil
	}
	a.version = secret.ResourceVersion
	if a.config, err = kubeconfig.FromSecret(secret.Data); err != nil {
		a.fault = accessError{fmt.Errorf("kubeconfig in Secret %s: %w", a.name, err)}
		return nil
	}
	a.config, a.fault = bounded(a.config), nil
	return nil
}

// bounded limits what a client does to a tenant, and what a tenant can do to it.
func bounded(c *rest.Config) *rest.Config {
	c.QPS, c.Burst = tenantQPS, tenantBurst
	c.UserAgent = "butler-ipam"
	c.Dial = (&net.Dialer{Timeout: tenantTimeout, KeepAlive: 15 * time.Second}).DialContext
	// In JSON every event of a watch is a line, and of a list the objects can be counted before they are read: in protobuf two bytes can be one.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return c
}

// limits is a transport whose answers begin in time and have an end. Those to watches go on, and each of their events has an end: over is told of
// one that has not.
type limits struct {
	http.RoundTripper
	over func(error)
}

// RoundTrip implements http.RoundTripper.
func (l limits) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	late := time.AfterFunc(tenantTimeout, func() { cancel(fmt.Errorf("no answer within %s", tenantTimeout)) })
	response, err := l.RoundTripper.RoundTrip(r.WithContext(ctx))
	watches := r.URL.Query().Get("watch") != ""
	if watches {
		late.Stop()
	}
	if err != nil {
		late.Stop()
		if cause := context.Cause(ctx); ctx.Err() != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	body := &limitedBody{ReadCloser: response.Body, done: func() { late.Stop(); cancel(nil) }}
	if watches {
		body.lines, body.over = true, l.over
	}
	response.Body = body
	return response, nil
}

// errTooLarge says that an answer of a tenant's, or an event, is larger than what is read.
var errTooLarge = fmt.Errorf("the tenant's answer has more than %d bytes, or would take more than %d once it is decoded", tenantAnswer, tenantMemory)

// limitedBody is the body of an answer that has an end, or whose lines have.
type limitedBody struct {
	io.ReadCloser
	done  func()
	lines bool // each has an end of its own
	over  func(error)
	read  measure // of the answer, or of the line
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	fresh := p[:n]
	if end := bytes.LastIndexByte(fresh, '\n'); b.lines && end >= 0 {
		b.read, fresh = measure{}, fresh[end+1:]
	}
	b.read.add(fresh)
	if b.read.fits() {
		return n, err
	}
	if b.over != nil {
		b.over(errTooLarge)
	}
	return 0, errTooLarge
}

// measure is how much JSON has been read: bytes, and commas between values.
type measure struct {
	bytes, commas   int64
	quoted, escaped bool // in a string, after a backslash
}

func (m *measure) add(text []byte) {
	m.bytes += int64(len(text))
	for _, c := range text {
		switch {
		case m.escaped:
			m.escaped = false
		case m.quoted && c == '\\':
			m.escaped = true
		case c == '"':
			m.quoted = !m.quoted
		case c == ',' && !m.quoted:
			m.commas++
		}
	}
}

// fits tells whether a tenant may send as much at once.
func (m *measure) fits() bool {
	return m.bytes <= tenantAnswer && fields.Decoded(m.bytes, m.commas) <= tenantMemory
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// httpClient is that of a tenant. It goes nowhere else: a redirect would lead it to where its kubeconfig does not.
// over is told of an event that has no end.
func httpClient(c *rest.Config, over func(error)) (*http.Client, error) {
	trusting, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	client := *trusting
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("redirected, which is refused") }
	client.Transport = impatient{limits{client.Transport, over}}
	return &client, nil
}

// impatient asks again after a second where it is told to wait for longer: an API server that has just started says five, and is ready before that.
// The calls of a tenant are few, and one at a time for each kind.
type impatient struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t impatient) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(req)
	if err == nil && answer.Header.Get("Retry-After") != "" {
		answer.Header.Set("Retry-After", "1")
	}
	return answer, err
}
