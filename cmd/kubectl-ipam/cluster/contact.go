package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

const (
	// probeInterval is the interval of the checks whether the watched objects are
	// current. probeTimeout bounds a check.
	probeInterval = 2 * time.Second
	probeTimeout  = 3 * time.Second
	// shortOutage is the longest time for which outdated objects are not reported:
	// watches are interrupted at every restart of an API server.
	shortOutage = 5 * time.Second
)

// contact records until when the objects of watches are current. The objects are current
// at a time if the API server is ready, and no list or watch fails. The probe is needed
// in addition to the watches, because a watch over a connection that loses every packet
// fails only after a minute.
type contact struct {
	mu      sync.Mutex
	current time.Time // last time at which all objects were current
	cause   string    // why the objects are not current now; "" for current objects
}

// outdated returns the time until which the objects are current, and the reason. The time
// is zero for current objects, and for an outage shorter than shortOutage.
func (c *contact) outdated() (since time.Time, cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == "" || time.Since(c.current) < shortOutage {
		return time.Time{}, ""
	}
	return c.current, c.cause
}

// record records the result of a check that began at a time.
func (c *contact) record(begun time.Time, cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause = cause; cause == "" {
		c.current = begun
	}
}

// follow checks every probeInterval whether the watched objects are current, until ctx
// ends.
func (f *Feed) follow(ctx context.Context, client *rest.RESTClient) {
	for {
		begun := time.Now()
		cause := probe(ctx, client)
		if cause == "" {
			cause = f.failing()
		}
		f.contact.record(begun, cause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(probeInterval):
		}
	}
}

// probe returns the reason why the API server cannot be reached or is not ready; "" for a
// ready API server. A response that denies the read of /readyz counts as ready: clusters
// may withdraw this right from users.
func probe(ctx context.Context, client *rest.RESTClient) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := client.Get().AbsPath("readyz").MaxRetries(0).Do(ctx).Error()
	var response apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsTooManyRequests(err):
		return ""
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the credentials"
	case errors.As(err, &response):
		return "the API server is not ready"
	}
	return "the API server cannot be reached"
}

// failing returns the reason why watches fail; "" without a failure.
func (f *Feed) failing() string {
	watched, _ := f.current()
	var names []string
	for _, w := range watched {
		if w.failing.Load() {
			names = append(names, w.of.Resource)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "the watch of " + strings.Join(names, ", ") + " fails"
}

// Outdated returns the time until which the objects are current, and the reason: "the API
// server cannot be reached". The time is zero for current objects. A short interruption
// does not count.
func (f *Feed) Outdated() (since time.Time, cause string) { return f.contact.outdated() }

// ExplainUnreachable returns an error that names the API server and the cause, if an
// error means that the API server sent no response. Otherwise the error is returned
// unchanged.
func ExplainUnreachable(err error) error {
	var failed *url.Error
	if !IsUnreachable(err) || !errors.As(err, &failed) {
		return err
	}
	host := failed.URL
	if u, problem := url.Parse(failed.URL); problem == nil && u.Host != "" {
		host = u.Scheme + "://" + u.Host
	}
	return fmt.Errorf("cannot reach the API server %s: %w", host, failed.Err)
}

// IsUnreachable reports whether an error means that the API server sent no response.
func IsUnreachable(err error) bool {
	var failed *url.Error
	return errors.As(err, &failed) && !errors.Is(err, context.Canceled)
}
