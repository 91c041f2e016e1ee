package history

import (
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func convert(o client.Object) ledger.Claim { return butler.ConvertClaim(o.(*v1alpha1.IPAllocation)) }

// allocation returns a stored allocation with this UID, version and phase.
func allocation(t *testing.T, uid types.UID, version int, phase v1alpha1.IPAllocationPhase) *v1alpha1.IPAllocation {
	t.Helper()
	a := &v1alpha1.IPAllocation{}
	a.Namespace, a.Name, a.UID, a.ResourceVersion = "tenants", string(uid), uid, strconv.Itoa(version)
	r, err := allocator.ParseRange("10.0.0.0/29")
	if err != nil {
		t.Fatal(err)
	}
	a.Spec.PinnedRange, a.Status.Phase = butler.FormatPinnedRange(r), phase
	return a
}

var logLine = regexp.MustCompile(`"msg"="(\w+)".*"uid"="(\w+)"`)

// follower returns the recorder of a replica that does not lead and has listed the stored
// claims, and a function that returns the logged events.
func follower(stored ...client.Object) (r *Recorder, logged func() []string) {
	var lines []string
	log := funcr.New(func(_, line string) {
		if parts := logLine.FindStringSubmatch(line); parts != nil {
			line = parts[1] + " " + parts[2]
		}
		lines = append(lines, line)
	}, funcr.Options{})
	r = New(log, time.Now)
	r.SetLedger(ledger.New(ledger.Config{ClaimResources: []string{butler.ResourceIPAllocation}}))
	r.AddClaims(Claims{Resource: butler.ResourceIPAllocation, Convert: convert, Stored: func() []client.Object { return stored }})
	return r, func() []string {
		slices.Sort(lines)
		return lines
	}
}

func TestRecorder_LeadLogsWhatThePreviousLeaderMayNotHaveLogged(t *testing.T) {
	applied := map[string]uint64{butler.ResourceIPAllocation: 10}
	stored := []client.Object{
		allocation(t, "logged", 10, v1alpha1.PhaseAllocated), allocation(t, "listed", 11, v1alpha1.PhaseAllocated), allocation(t, "pending", 12, v1alpha1.PhasePending),
	}
	for name, c := range map[string]struct {
		startedBefore time.Duration
		want          []string
	}{
		"soon after the start": {0, []string{"Allocated listed", "Allocated watched"}},
		"long after the start": {keepFor, []string{"Allocated watched"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, logged := follower(stored...)
			r.started = r.started.Add(-c.startedBefore)
			r.Observe(nil, allocation(t, "early", 9, v1alpha1.PhaseAllocated), convert)
			r.Observe(allocation(t, "watched", 13, v1alpha1.PhasePending), allocation(t, "watched", 14, v1alpha1.PhaseAllocated), convert)
			r.Lead(applied)
			if got := logged(); !slices.Equal(got, c.want) {
				t.Errorf("logged %q, want %q", got, c.want)
			}
			if len(r.kept) > 0 {
				t.Errorf("%d events are still kept", len(r.kept))
			}
		})
	}
}

// A follower may observe far more events than it keeps. If each further event moved all
// kept events, the total cost would be quadratic: 100,000 claims took 29 s.
func TestRecorder_KeepMovesFewEvents(t *testing.T) {
	r, _ := follower()
	const events, most = 4 * maxKept, 40 * maxKept
	moved := 0
	for n := range events {
		var last *event
		if len(r.kept) > 0 {
			last = &r.kept[len(r.kept)-1]
		}
		r.keep(event{version: uint64(n)})
		if last != nil && &r.kept[len(r.kept)-2] != last {
			if moved += len(r.kept); moved > most {
				t.Fatalf("%d kept events moved for %d new events, want at most %d for %d", moved, n, most, events)
			}
		}
	}
	if len(r.kept) != maxKept || r.kept[0].version != events-maxKept || r.kept[maxKept-1].version != events-1 {
		t.Errorf("%d events are kept, versions %d to %d", len(r.kept), r.kept[0].version, r.kept[len(r.kept)-1].version)
	}
}
