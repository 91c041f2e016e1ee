package flow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var (
	pod   = types.NamespacedName{Namespace: "ns", Name: "a"}
	errNo = errors.New("refused")
)

// worker takes an pod from a queue as a controller does: after each attempt when it is
// due, and at once with each event.
type worker struct {
	*Backoff
	result   reconcile.Result
	err      error
	attempts int
}

func (w *worker) reconcile(ctx context.Context, basis any) time.Duration {
	result, err := w.Attempt(ctx, pod, basis, func() (reconcile.Result, error) {
		w.attempts++
		return w.result, w.err
	})
	if err != nil {
		panic(err)
	}
	return result.RequeueAfter
}

// run takes the pod for a time, with an event as often, and returns how many attempts
// there were.
func (w *worker) run(ctx context.Context, d, event time.Duration, basis func() any) int {
	before := w.attempts
	for end := time.Now().Add(d); time.Now().Before(end); {
		again := w.reconcile(ctx, basis())
		if event > 0 && (again == 0 || event < again) {
			again = event
		}
		if again == 0 {
			break
		}
		time.Sleep(again)
	}
	return w.attempts - before
}

func same() any { return 0 }

func TestBackoff(t *testing.T) {
	version := 0
	next := func() any { version++; return version }
	for _, tc := range []struct {
		what          string
		event         time.Duration
		basis         func() any
		result        reconcile.Result
		first, latest int // attempts in the first minute, and in the tenth, at most
	}{
		{"without_events", 0, same, reconcile.Result{}, 11, 2},
		{"with_events_that_change_nothing", 10 * time.Millisecond, same, reconcile.Result{}, 11, 2},
		{"with_changes_all_the_time", 10 * time.Millisecond, next, reconcile.Result{}, 65, 60},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &worker{Backoff: NewBackoff(FirstPause), err: errNo}
				if n := w.run(t.Context(), time.Minute, tc.event, tc.basis); n > tc.first || n < 8 {
					t.Errorf("%d attempts in the first minute, want %d at most", n, tc.first)
				}
				w.run(t.Context(), 8*time.Minute, tc.event, tc.basis)
				if n := w.run(t.Context(), time.Minute, tc.event, tc.basis); n > tc.latest || n < 1 {
					t.Errorf("%d attempts in the tenth minute, want %d at most", n, tc.latest)
				}
			})
		})
	}
}

func TestBackoff_Attempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{Backoff: NewBackoff(FirstPause), err: errNo}
		w.run(t.Context(), 5*time.Minute, 0, same)
		// A requeue is neither a failure nor a success, and so is an attempt that finds
		// nothing to do yet.
		w.err, w.result = nil, reconcile.Result{RequeueAfter: time.Second}
		time.Sleep(LongestPause)
		failures := w.Failures(pod)
		if again := w.reconcile(t.Context(), 0); again != time.Second || w.Failures(pod) != failures {
			t.Errorf("requeued after %s with %d failures, want %d", again, w.Failures(pod), failures)
		}
		w.err = ErrNothingToDo
		if again := w.reconcile(t.Context(), 0); again != 0 || w.Failures(pod) != failures {
			t.Errorf("with nothing to do: requeued after %s with %d failures, want %d", again, w.Failures(pod), failures)
		}
		w.err = errNo
		if again := w.reconcile(t.Context(), 0); again != LongestPause {
			t.Errorf("the pause after the requeue is %s, want %s", again, LongestPause)
		}
		// A change brings one attempt, and does not forget the failures.
		time.Sleep(2 * changedPause)
		before := w.attempts
		if again := w.reconcile(t.Context(), 1); again != LongestPause || w.attempts != before+1 {
			t.Errorf("%d attempts after a change, the pause is %s", w.attempts-before, again)
		}
		// So does whoever knows that the cause may have ended.
		w.RetrySoon(pod)
		if again := w.reconcile(t.Context(), 1); again != changedPause {
			t.Errorf("hastened, it is due in %s, want %s", again, changedPause)
		}
		time.Sleep(changedPause)
		w.err, w.result = nil, reconcile.Result{}
		if again := w.reconcile(t.Context(), 1); again != 0 || w.Failures(pod) != 0 || len(w.pending) != 0 {
			t.Errorf("after a success it is due in %s, with %d failures; %d pauses", again, w.Failures(pod), len(w.pending))
		}
	})
}

func TestBackoff_Log(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, told := 0, 0
		log := funcr.New(func(_, _ string) { lines++ }, funcr.Options{})
		w := &worker{Backoff: NewBackoff(FirstPause), err: errNo}
		ctx := ctrllog.IntoContext(t.Context(), log)
		for range 1000 {
			if w.ShouldReport(pod) {
				told++
			}
			w.Failed(ctx, pod, 0, errNo)
		}
		if lines != 8 || told != 8 {
			t.Errorf("%d lines and %d times told of 1000 failures, want 8", lines, told)
		}
	})
}

func TestBasisOf(t *testing.T) {
	base := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: "u", Generation: 1, ResourceVersion: "1", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d", "ours": "1"},
	}}
	now := metav1.Now()
	for _, tc := range []struct {
		what   string
		change func(*metav1.PartialObjectMetadata)
		differ bool
	}{
		{"version", func(o *metav1.PartialObjectMetadata) { o.ResourceVersion = "2" }, false},
		{"annotation of the managers", func(o *metav1.PartialObjectMetadata) { o.Annotations["ours"] = "2" }, false},
		{"finalizer", func(o *metav1.PartialObjectMetadata) { o.Finalizers = []string{"x"} }, false},
		{"spec", func(o *metav1.PartialObjectMetadata) { o.Generation = 2 }, true},
		{"deletion", func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = &now }, true},
		{"another pod of the name", func(o *metav1.PartialObjectMetadata) { o.UID = "v" }, true},
		{"label", func(o *metav1.PartialObjectMetadata) { o.Labels["a"] = "c" }, true},
		{"annotation", func(o *metav1.PartialObjectMetadata) { o.Annotations["c"] = "e" }, true},
		{"annotation removed", func(o *metav1.PartialObjectMetadata) { delete(o.Annotations, "c") }, true},
		{"label for annotation", func(o *metav1.PartialObjectMetadata) {
			o.Labels, o.Annotations = map[string]string{"a": "b", "c": "d"}, nil
		}, true},
	} {
		changed := base.DeepCopy()
		tc.change(changed)
		if differ := BasisOf(changed, "ours") != BasisOf(&base, "ours"); differ != tc.differ {
			t.Errorf("%s: differs %t, want %t", tc.what, differ, tc.differ)
		}
	}
}
