package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"

	"butlerlabs.dev/ipam/allocator/journal"
)

const (
	// answerPoll is the time between two questions whether the API server answers.
	answerPoll = time.Second
	// answerLog is how long it is silent before the log says so again.
	answerLog = 30 * time.Second
)

// awaitAPIServer waits until the API server answers, which after a power cut may come up later than this process. To end instead would
// have the kubelet start it again at ever longer intervals, of up to five minutes.
func awaitAPIServer(ctx context.Context, server discovery.ServerGroupsInterface, checks *probes, log logr.Logger) error {
	began := time.Now()
	var said time.Time
	for {
		_, err := server.ServerGroups()
		if err == nil {
			break
		}
		err = fmt.Errorf("the API server does not answer: %w", err)
		checks.awaited.Store(&err)
		if time.Since(said) > answerLog {
			log.Error(err, "Waiting", "since", began.Format(time.RFC3339), "askedAgainAfter", answerPoll.String())
			said = time.Now()
		}
		if err := journal.Pause(ctx, answerPoll); err != nil {
			return err
		}
	}
	checks.awaited.Store(nil)
	if !said.IsZero() {
		log.Info("The API server answers", "after", time.Since(began).String())
	}
	return nil
}
