package session

import (
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/record"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// A tenant that changes MetalLB's objects or its Services again and again does not fill
// the log.
func TestBoundedEvents_Lines(t *testing.T) {
	now, lines := noon, 0
	s := &session{lines: rate.NewLimiter(rate.Every(lineInterval), lineBurst), Deps: Deps{
		Now:    func() time.Time { return now },
		Events: report.Events{Recorder: &record.FakeRecorder{}, Log: funcr.New(func(string, string) { lines++ }, funcr.Options{})},
	}}
	for range 10 * lineBurst {
		s.boundedEvents().RecordDrift(&v1alpha1.TenantCluster{}, nil, "it was changed")
	}
	if lines != lineBurst {
		t.Errorf("%d lines at once, want %d", lines, lineBurst)
	}
	now = now.Add(lineInterval)
	for range 3 {
		s.boundedEvents().RecordPoolWritten(&v1alpha1.TenantCluster{}, nil, "added a")
	}
	if lines != lineBurst+1 {
		t.Errorf("%d more lines after %s, want 1", lines-lineBurst, lineInterval)
	}
}
