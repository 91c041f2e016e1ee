package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"

	"butlerlabs.dev/ipam/allocator/journal"
)

const (
	// readyPoll is the time between two questions whether the API server is ready.
	readyPoll = 500 * time.Millisecond
	// readyLog is how long it is not before the log says so again.
	readyLog = 30 * time.Second
)

// awaitAPIServer waits until the API server is ready and has the CRDs of these APIs. After a power cut it may come up later than this process, and
// who installs may bring the CRDs last. To end instead would have the kubelet start the process again at ever longer intervals, of up to five minutes.
// CRDs of one API are waited for up to the limit while those of another are there: then that one is served, and the others as soon as their CRDs come.
func awaitAPIServer(ctx context.Context, server discovery.DiscoveryInterface, required apis, limit time.Duration, checks *probes, log logr.Logger) error {
	began := time.Now()
	var said time.Time
	for err := askReady(ctx, server, required); err != nil; err = askReady(ctx, server, required) {
		if lacks := (*missingError)(nil); errors.As(err, &lacks) && !lacks.all && time.Since(began) >= limit {
			log.Error(err, "Starting without them: their API is served when they come")
			break
		}
		checks.awaited.Store(&err)
		if time.Since(said) > readyLog {
			log.Error(err, "Waiting", "since", began.Format(time.RFC3339), "askedAgainAfter", readyPoll.String())
			said = time.Now()
		}
		if err := journal.Pause(ctx, readyPoll); err != nil {
			return err
		}
	}
	checks.awaited.Store(nil)
	if !said.IsZero() {
		log.Info("The API server is ready", "after", time.Since(began).String())
	}
	return nil
}

// askReady asks once. An API server may keep to itself whether it is ready: then it is when it says what it serves, which it does not before it knows
// who may ask. Before it is ready it does not know all its CRDs.
func askReady(ctx context.Context, server discovery.DiscoveryInterface, required apis) error {
	_, err := server.ServerGroups()
	if err == nil {
		err = server.RESTClient().Get().AbsPath("/readyz").Timeout(callLimit).MaxRetries(0).Do(ctx).Error()
	}
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("the API server is not ready: %w", err)
	}
	lacks := &missingError{all: true}
	for _, one := range required {
		missing, err := one.missing(server)
		if err != nil {
			return fmt.Errorf("the API server does not say what it serves: %w", err)
		}
		lacks.crds = append(lacks.crds, missing...)
		lacks.all = lacks.all && len(missing) > 0
	}
	if len(lacks.crds) > 0 {
		return lacks
	}
	return nil
}

// missingError names CRDs that the API server does not have.
type missingError struct {
	crds []string
	all  bool // of each API some
}

func (e *missingError) Error() string {
	return fmt.Sprintf("the API server has no CRDs %s: install them (config/crd, or crds.install of the chart), or leave their API out of --apis", strings.Join(e.crds, ", "))
}
