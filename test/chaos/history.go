package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// history is what clients were told and what was stored.
type history struct {
	mu       sync.Mutex
	answers  map[types.UID]string // range in the answer to a create that succeeded
	refused  map[string]error     // name -> why no object of it may be
	objects  map[types.UID]*object
	live     map[types.UID]*object
	overlaps []overlap
	broken   []string

	creates, ok, failed, refusals int
	lastOK                        time.Time
	gap                           time.Duration
	failures                      map[string]int // text -> how often
}

// object is one stored allocation, as last seen.
type object struct {
	name           string
	uid            types.UID
	first, last    netip.Addr
	ready, flagged bool
	everFlagged    bool
	gone           bool
}

// overlap is two objects that had an address at the same time.
type overlap struct{ a, b *object }

func newHistory() *history {
	return &history{
		answers: map[types.UID]string{}, refused: map[string]error{}, objects: map[types.UID]*object{}, live: map[types.UID]*object{}, failures: map[string]int{},
	}
}

// refusal says whether an error is an answer about the object, which leaves nothing, rather than a failure whose outcome is open.
func refusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code == http.StatusForbidden || code == http.StatusUnprocessableEntity
}

func (h *history) created(a *v1alpha1.IPAllocation, name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.creates++
	h.count(a, err)
	if err != nil && refusal(err) && name != "" {
		h.refused[name] = err
	}
}

func (h *history) recreated(a *v1alpha1.IPAllocation, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.creates++
	h.count(a, err)
}

func (h *history) count(a *v1alpha1.IPAllocation, err error) {
	switch {
	case err == nil:
		h.ok++
		now := time.Now()
		if !h.lastOK.IsZero() {
			h.gap = max(h.gap, now.Sub(h.lastOK))
		}
		h.lastOK = now
		if a.Spec.PinnedRange == nil {
			h.broken = append(h.broken, fmt.Sprintf("the answer to the create of %s holds no range", a.Name))
			return
		}
		h.answers[a.UID] = a.Spec.PinnedRange.StartAddress + "-" + a.Spec.PinnedRange.EndAddress
	case refusal(err):
		h.refusals++
	default:
		h.failed++
		h.failures[shorten(err.Error())]++
	}
}

// shorten leaves of an error what does not differ from call to call.
func shorten(text string) string {
	for _, cut := range []string{"failed calling webhook", "denied the request", "connection refused", "EOF", "context deadline exceeded", "etcdserver", "connection reset", "TLS handshake", "cannot allocate now"} {
		if i := strings.Index(text, cut); i >= 0 {
			return text[i:min(len(text), i+140)]
		}
	}
	return text[:min(len(text), 160)]
}

// updated takes down an update that must have changed nothing of the answer.
func (h *history) updated(a *v1alpha1.IPAllocation, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || a.Spec.PinnedRange == nil {
		return
	}
	if was, is := h.answers[a.UID], a.Spec.PinnedRange.StartAddress+"-"+a.Spec.PinnedRange.EndAddress; was != "" && was != is {
		h.broken = append(h.broken, fmt.Sprintf("an update of %s moved it from %s to %s", a.Name, was, is))
	}
}

func (h *history) ended() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lastOK.IsZero() {
		h.gap = max(h.gap, time.Since(h.lastOK))
	}
}

// watch sees every version of every object until ctx ends. Where the watch breaks and cannot go on from where it was, it starts
// anew with what is stored then.
func (h *history) watch(ctx context.Context, c client.WithWatch) error {
	version := ""
	for ctx.Err() == nil {
		if version == "" {
			var all v1alpha1.IPAllocationList
			if err := c.List(ctx, &all, client.InNamespace(namespace)); err != nil {
				pause(ctx)
				continue
			}
			version = all.ResourceVersion
			h.replace(all.Items)
		}
		options := &client.ListOptions{Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}}
		w, err := c.Watch(ctx, &v1alpha1.IPAllocationList{}, options)
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				version = ""
			}
			pause(ctx)
			continue
		}
		version = h.follow(ctx, w, version)
	}
	return nil
}

// follow takes in events and returns the last version seen, "" where the watch must start anew.
func (h *history) follow(ctx context.Context, w watch.Interface, version string) string {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return version
		case e, open := <-w.ResultChan():
			if !open {
				return version
			}
			if e.Type == watch.Error {
				return ""
			}
			a, is := e.Object.(*v1alpha1.IPAllocation)
			if !is {
				continue
			}
			version = a.ResourceVersion
			h.mu.Lock()
			switch e.Type {
			case watch.Added, watch.Modified:
				h.saw(a)
			case watch.Deleted:
				h.forget(a.UID)
			}
			h.mu.Unlock()
		}
	}
}

func (h *history) replace(all []v1alpha1.IPAllocation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := map[types.UID]bool{}
	for i := range all {
		there[all[i].UID] = true
	}
	for uid := range h.live {
		if !there[uid] {
			h.forget(uid)
		}
	}
	for i := range all {
		h.saw(&all[i])
	}
}

func (h *history) forget(uid types.UID) {
	if o := h.live[uid]; o != nil {
		o.gone = true
		delete(h.live, uid)
	}
}

func (h *history) saw(a *v1alpha1.IPAllocation) {
	o := h.objects[a.UID]
	if o == nil {
		o = &object{name: a.Name, uid: a.UID}
		h.objects[a.UID], h.live[a.UID] = o, o
	}
	ready := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
	o.ready = ready != nil && ready.Status == metav1.ConditionTrue
	o.flagged = ready != nil && ready.Reason == v1alpha1.ReasonAddressConflict
	o.everFlagged = o.everFlagged || o.flagged
	if a.Spec.PinnedRange == nil {
		return
	}
	first, last := netip.MustParseAddr(a.Spec.PinnedRange.StartAddress), netip.MustParseAddr(a.Spec.PinnedRange.EndAddress)
	isNew := !o.first.IsValid()
	if !isNew && (first != o.first || last != o.last) {
		h.broken = append(h.broken, fmt.Sprintf("%s was moved from %s-%s to %s-%s", o.name, o.first, o.last, first, last))
	}
	o.first, o.last = first, last
	for _, other := range h.live {
		if other == o || !other.first.IsValid() || other.last.Less(first) || last.Less(other.first) {
			continue
		}
		if isNew {
			h.overlaps = append(h.overlaps, overlap{other, o})
		}
		if o.ready && other.ready {
			h.broken = append(h.broken, fmt.Sprintf("%s and %s are both Ready with %s-%s", other.name, o.name, first, last))
		}
	}
}

// judge says what broke the promises.
func (h *history) judge() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	broken := h.broken
	for _, p := range h.overlaps {
		_, aOK := h.answers[p.a.uid]
		_, bOK := h.answers[p.b.uid]
		what := fmt.Sprintf("%s and %s held %s-%s at a time", p.a.name, p.b.name, p.b.first, p.b.last)
		switch {
		case aOK && bOK:
			broken = append(broken, what)
		case !p.a.gone && !p.b.gone && !p.a.flagged && !p.b.flagged:
			broken = append(broken, what+", and neither is flagged")
		}
	}
	byName := map[string]*object{}
	for uid, o := range h.objects {
		byName[o.name] = o
		if answer, answered := h.answers[uid]; answered && o.first.IsValid() && answer != o.first.String()+"-"+o.last.String() {
			broken = append(broken, fmt.Sprintf("%s has %s-%s, the answer said %s", o.name, o.first, o.last, answer))
		}
	}
	for name, why := range h.refused {
		if byName[name] != nil {
			broken = append(broken, fmt.Sprintf("%s was refused and was stored: %v", name, why))
		}
	}
	return broken
}

// summary is the last line.
func (h *history) summary(leaks int, takeovers int64) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	overlaps, late := 0, 0
	for _, p := range h.overlaps {
		_, aOK := h.answers[p.a.uid]
		_, bOK := h.answers[p.b.uid]
		switch {
		case aOK && bOK:
			overlaps++
		case p.a.everFlagged || p.b.everFlagged:
			late++
		}
	}
	text := ""
	for reason, n := range h.failures {
		text += fmt.Sprintf("failed %d times: %s\n", n, reason)
	}
	return text + fmt.Sprintf("creates=%d ok=%d failed=%d refused=%d overlaps=%d leaks=%d late_flagged=%d max_gap_s=%.1f takeovers=%d",
		h.creates, h.ok, h.failed, h.refusals, overlaps, leaks, late, h.gap.Seconds(), takeovers)
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}
