package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

// resized is the interval at which a changed memory limit of the container is detected.
const memoryRefresh = time.Minute

// limitMemory sets the memory limit of the garbage collector to nine tenths of the container's limit. Near the limit the collector works harder; without a
// limit the heap could double, and the kernel would kill the process. The environment variables GOMEMLIMIT and AUTOMEMLIMIT take precedence. A process
// without a control group has no limit.
func limitMemory(ctx context.Context, log logr.Logger) {
	if _, err := memlimit.FromCgroup(); err != nil && !errors.Is(err, memlimit.ErrNoLimit) {
		log.V(1).Info("No limit is known", "reason", err.Error())
		return
	}
	_, _ = memlimit.Set( // it has logged the error
		memlimit.WithLogger(slog.New(logr.ToSlogHandler(log))),
		memlimit.WithRefreshInterval(ctx, memoryRefresh))
}
