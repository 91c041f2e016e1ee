package main

import (
	"context"
	"fmt"
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

// awaitAPIServer waits until the API server is ready, which after a power cut may come up later than this process. To end instead would
// have the kubelet start it again at ever longer intervals, of up to five minutes. One that answers and is not ready yet does not know
// all its CRDs.
func awaitAPIServer(ctx context.Context, server discovery.DiscoveryInterface, checks *probes, log logr.Logger) error {
	began := time.Now()
	var said time.Time
	for {
		err := askReady(ctx, server)
		if err == nil {
			break
		}
		err = fmt.Errorf("the API server is not ready: %w", err)
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
// who may ask.
func askReady(ctx context.Context, server discovery.DiscoveryInterface) error {
	if _, err := server.ServerGroups(); err != nil {
		return err
	}
	err := server.RESTClient().Get().AbsPath("/readyz").Timeout(callLimit).MaxRetries(0).Do(ctx).Error()
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
