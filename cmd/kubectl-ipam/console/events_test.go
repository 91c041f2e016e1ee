package console

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// The page of a pool shows the newest events, and a note if events are not read.
func TestPool_Events(t *testing.T) {
	page := func(events func(context.Context, *inventory.Pool) ([]inventory.Event, string)) string {
		h := New(Options{
			View: func(context.Context) (View, error) { return View{Inventory: newInventory(t, objects())}, nil },
			Now:  func() time.Time { return now }, Events: events,
		})
		page := mustGet(t, h, "/pool?"+vlan40)
		_, page, _ = strings.Cut(page, `<h2 id="events">`)
		page, _, _ = strings.Cut(page, "</section>")
		return page
	}
	some := func(n int, note string) func(context.Context, *inventory.Pool) ([]inventory.Event, string) {
		return func(_ context.Context, p *inventory.Pool) (list []inventory.Event, _ string) {
			for i := range n {
				list = append(list, inventory.Event{Warning: i == 0, Reason: fmt.Sprint("Reason", i), Message: p.Key.Name + " & <b>", Count: int32(i + 1), Last: now.Add(-time.Duration(i) * time.Minute)})
			}
			return list, note
		}
	}
	if got := page(nil); got != "" {
		t.Errorf("without events: %s", got)
	}
	if got := page(some(0, "")); !strings.Contains(got, "No event") {
		t.Errorf("no event: %s", got)
	}
	if got := page(some(0, "events: not read")); !strings.Contains(got, "events: not read") || strings.Contains(got, "No event") {
		t.Errorf("not read: %s", got)
	}
	got := page(some(25, ""))
	if n := strings.Count(got, "<th scope=\"row\">"); n != 20 || !strings.Contains(got, "5 more") {
		t.Errorf("%d events: %s", n, got)
	}
	for _, want := range []string{
		`<td class="mono">2026-01-02 03:04:05Z</td><td>Warning</td><th scope="row">Reason0</th><td class="n">1</td><td>vlan40 &amp; &lt;b&gt;</td>`,
		`<td class="mono">2026-01-02 03:03:05Z</td><td>Normal</td><th scope="row">Reason1</th><td class="n">2</td>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no row %s in %s", want, got)
		}
	}
}

// NewEvent reads the count and the last time from the fields that client-go,
// events.k8s.io and event series use.
func TestNewEvent(t *testing.T) {
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	created := metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now)}
	for name, test := range map[string]struct {
		stored corev1.Event
		want   inventory.Event
	}{
		"bare":       {corev1.Event{ObjectMeta: created}, inventory.Event{Count: 1, Last: now}},
		"client-go":  {corev1.Event{ObjectMeta: created, Count: 3, LastTimestamp: metav1.NewTime(at(2))}, inventory.Event{Count: 3, Last: at(2)}},
		"events.k8s": {corev1.Event{ObjectMeta: created, EventTime: metav1.NewMicroTime(at(1))}, inventory.Event{Count: 1, Last: at(1)}},
		"series": {
			corev1.Event{ObjectMeta: created, EventTime: metav1.NewMicroTime(at(1)), Series: &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(at(5))}},
			inventory.Event{Count: 7, Last: at(5)},
		},
		"warning": {corev1.Event{ObjectMeta: created, Type: "Warning", Reason: "R", Message: "M"}, inventory.Event{Warning: true, Reason: "R", Message: "M", Count: 1, Last: now}},
	} {
		if got := inventory.NewEvent(&test.stored); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
