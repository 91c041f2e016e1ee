package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

// memoryRefresh is the interval of reads of the container's memory limit, which may
// change.
const memoryRefresh = time.Minute

// limitMemory sets the memory limit of the garbage collector to 90 % of the container's
// limit. Near the limit the collector runs more often; without a limit the heap could
// double, and the kernel would kill the process. The environment variables GOMEMLIMIT and
// AUTOMEMLIMIT take precedence. A process without a control group has no limit.
func limitMemory(ctx context.Context, log logr.Logger) {
	if _, err := memlimit.FromCgroup(); err != nil && !errors.Is(err, memlimit.ErrNoLimit) {
		log.V(1).Info("No limit is known", "reason", err.Error())
		return
	}
	_, _ = memlimit.Set( // Set logs the error
		memlimit.WithLogger(slog.New(logr.ToSlogHandler(log))),
		memlimit.WithRefreshInterval(ctx, memoryRefresh))
}
