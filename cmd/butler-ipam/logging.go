package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
)

// newLogger returns a logger to standard error. Levels are the levels of logr: V(1) is
// debug.
func newLogger(format, level string) (logr.Logger, error) {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	var encoder zapcore.Encoder
	switch format {
	case "json":
		encoder = zapcore.NewJSONEncoder(encoding)
	case "console":
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(encoding)
	default:
		return logr.Logger{}, fmt.Errorf("--log-format %q must be json or console", format)
	}
	least, err := zapLevel(level)
	if err != nil {
		return logr.Logger{}, err
	}
	return zapr.NewLogger(zap.New(withoutProbes{zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), least)})), nil
}

// withoutProbes drops the log lines of controller-runtime about failed probes. Package
// server logs each change of a check, with the reason.
type withoutProbes struct{ zapcore.Core }

// With encodes the fields when a line is written: controller-runtime adds fields to each
// reconciliation, and few reconciliations log.
func (c withoutProbes) With(fields []zapcore.Field) zapcore.Core {
	return withoutProbes{zapcore.NewLazyWith(c.Core, fields)}
}

func (c withoutProbes) Check(entry zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if entry.LoggerName == "controller-runtime.healthz" {
		return to
	}
	return c.Core.Check(entry, to)
}

// warningFilter drops the API server's warnings about the finalizer names of Metal3 and
// Cluster API. Other software depends on these names.
type warningFilter struct {
	rest.WarningHandlerWithContext
}

func (w warningFilter) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if !strings.Contains(text, "prefer a domain-qualified finalizer name") {
		w.WarningHandlerWithContext.HandleWarningHeaderWithContext(ctx, code, agent, text)
	}
}

// zapLevel parses a level. zapr maps logr's V(n) to zap's level -n.
func zapLevel(level string) (zapcore.Level, error) {
	switch level {
	case "error":
		return zapcore.ErrorLevel, nil
	case "info":
		return zapcore.InfoLevel, nil
	case "debug":
		return zapcore.DebugLevel, nil
	}
	verbosity, err := strconv.ParseUint(level, 10, 7)
	if err != nil {
		return 0, fmt.Errorf("--log-level %q must be error, info, debug, or a number from 0 to 127", level)
	}
	return -zapcore.Level(verbosity), nil
}
