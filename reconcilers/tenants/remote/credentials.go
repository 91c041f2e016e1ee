package remote

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/reconcilers/tenants/kubeconfig"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Intervals between two reads of the kubeconfig Secret. A Secret is read only when a
// connection is about to be made.
const (
	readInterval        = 30 * time.Second
	missingReadInterval = 2 * time.Second  // at the beginning of an outage, while the Secret is missing
	outageReadInterval  = 10 * time.Minute // while credentials have not worked for a minute
)

// AccessError reports that the kubeconfig of a tenant is missing or unusable. Retrying
// without a change of the Secret does not help.
type AccessError struct{ error }

// Unwrap returns the cause.
func (e AccessError) Unwrap() error { return e.error }

// Credentials caches the client configuration of one tenant, read from its kubeconfig
// Secret. Not safe for concurrent use.
type Credentials struct {
	secrets corev1client.SecretsGetter
	secret  types.NamespacedName

	readAt    time.Time // zero: read before the next use
	version   string    // resourceVersion of the Secret, "" while it is missing
	config    *rest.Config
	fault     error  // why the Secret is unusable
	rejected  string // version whose credentials the tenant rejected
	rejecting bool   // a version was rejected after the last read
}

// NewCredentials returns credentials that have not been read yet.
func NewCredentials(secrets corev1client.SecretsGetter, secret types.NamespacedName) Credentials {
	return Credentials{secrets: secrets, secret: secret}
}

// Namespace returns the namespace of the Secret.
func (c *Credentials) Namespace() string { return c.secret.Namespace }

// Config returns the client configuration and the version of the Secret. The Secret is
// read first when it is due; outage is how long the tenant has been unreachable. If a
// read fails, an earlier version remains in use.
func (c *Credentials) Config(ctx context.Context, now time.Time, outage time.Duration) (*rest.Config, string, error) {
	interval := readInterval
	switch {
	case c.version == "":
		interval = min(max(missingReadInterval, outage/10), outageReadInterval)
	case outage > 2*readInterval:
		interval = outageReadInterval // a change of the TenantCluster calls Invalidate
	}
	if c.readAt.IsZero() || now.Sub(c.readAt) >= interval || c.rejecting {
		if err := c.readSecret(ctx, now); err != nil && c.version == "" {
			return nil, "", err
		}
	}
	return c.config, c.version, c.fault
}

// Invalidate makes the next call of Config read the Secret.
func (c *Credentials) Invalidate() { c.readAt = time.Time{} }

// RejectVersion records that the tenant rejected the credentials of a version of the
// Secret. The Secret is then read once, without delay.
func (c *Credentials) RejectVersion(version string) {
	if c.rejected != version {
		c.rejected, c.rejecting = version, true
	}
}

// JustRejected reports whether a version was rejected after the last read: the next call
// of Config may return another version.
func (c *Credentials) JustRejected() bool { return c.rejecting }

func (c *Credentials) readSecret(ctx context.Context, now time.Time) error {
	c.rejecting = false
	secret, err := c.secrets.Secrets(c.secret.Namespace).Get(ctx, c.secret.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		c.readAt, c.version, c.config, c.fault = now, "", nil, AccessError{fmt.Errorf("kubeconfig: %w", err)}
		return nil
	case err != nil:
		return err
	}
	c.readAt = now
	if c.version == secret.ResourceVersion {
		return nil
	}
	c.version = secret.ResourceVersion
	if c.config, err = kubeconfig.FromSecret(secret.Data); err != nil {
		c.fault = AccessError{fmt.Errorf("kubeconfig in Secret %s: %w", c.secret, err)}
		return nil
	}
	limitClient(c.config)
	c.fault = nil
	return nil
}
