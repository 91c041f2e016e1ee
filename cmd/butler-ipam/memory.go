package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

// resized is how soon a container that is given more memory, or less, while it runs is noticed.
const resized = time.Minute

// limitMemory tells the garbage collector how much memory the container has, of which nine tenths are for it: near that it works harder, where it
// would else let the heap double and the kernel end the process. Environment variables GOMEMLIMIT and AUTOMEMLIMIT say otherwise. A process
// without a control group goes on without a limit.
func limitMemory(ctx context.Context, log logr.Logger) {
	if _, err := memlimit.FromCgroup(); err != nil && !errors.Is(err, memlimit.ErrNoLimit) {
		log.V(1).Info("No limit is known", "reason", err.Error())
		return
	}
	_, _ = memlimit.Set( // it has logged the error
		memlimit.WithLogger(slog.New(logr.ToSlogHandler(log))),
		memlimit.WithRefreshInterval(ctx, resized))
}
