package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
)

const (
	// ownersGrace is the time for owners to be released before a pool that is being
	// deleted has an event: most deletions delete a pool with its claims. If the text has
	// changed, the next event follows after ownersGrace, and each further event after
	// twice the pause before, up to reportEvery.
	ownersGrace = 5 * time.Second
	// maxNamedOwners bounds the owners that one event names.
	maxNamedOwners = 3
)

// reportOwners records an event with the owners for which a pool that is being deleted
// waits, and returns the time until the next event; zero without owners.
func (d *deps) reportOwners(p client.Object, pool ledger.Key, owners int, m *memory) (wait time.Duration) {
	if owners == 0 {
		return 0
	}
	if m.owners.mayDescribe(d.Now()) {
		if text := d.describeOwners(pool, owners); m.owners.mayReport(text, d.Now()) {
			d.reportWaitsForOwners(p, text)
		}
	}
	return m.owners.due.Sub(d.Now())
}

// ownersReport paces the events with the owners of a pool that is being deleted. The zero
// value is ready.
type ownersReport struct {
	due      time.Time // of the next description of the owners
	pause    time.Duration
	text     string    // of the last event
	reported time.Time // time of the last event
}

// mayDescribe reports whether the owners are to be described now. It is false for
// ownersGrace from the first call on.
func (r *ownersReport) mayDescribe(now time.Time) bool {
	if r.pause == 0 {
		r.pause, r.due = ownersGrace, now.Add(ownersGrace)
	}
	return !now.Before(r.due)
}

// mayReport reports whether the text needs an event: it differs from the text of the last
// event, or that event is old. The call doubles the pause.
func (r *ownersReport) mayReport(text string, now time.Time) bool {
	r.due = now.Add(r.pause)
	r.pause = min(2*r.pause, reportEvery)
	if text == r.text && now.Sub(r.reported) < reportEvery {
		return false
	}
	r.text, r.reported = text, now
	return true
}

// describeOwners names owners of a pool and an action. Owners that are not being deleted
// are named alone, if there are any: only a user can delete them.
func (d *deps) describeOwners(pool ledger.Key, total int) string {
	place := cmp.Or(pool.Namespace, metav1.NamespaceDefault) // of the event: events of cluster-scoped objects are in namespace default
	var keys []ledger.Key
	for _, o := range d.Ledger.StayingOwners(pool) {
		keys = append(keys, o.Key)
	}
	if len(keys) > 0 {
		keys = sortKeys(keys)
		total = len(keys)
		return fmt.Sprintf("addresses are owned %s: delete %s", nameOwners(keys, total, place), allocator.Agree(total, "it", "them"))
	}
	for _, o := range d.Ledger.OwnedThrough(pool) {
		keys = append(keys, o.Owner)
	}
	owned := fmt.Sprintf("addresses are owned %s, being deleted", nameOwners(keys, total, place))
	if wait := d.Ledger.ReleasesAwaited(pool); wait > 0 {
		return fmt.Sprintf("%s: wait until %s, as the API server may still store what an earlier leader has written", owned, d.Wall().Add(wait).UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s: remove what keeps %s (metadata.finalizers other than Butler IPAM's)", owned, allocator.Agree(total, "it", "them"))
}

// sortKeys sorts keys in place and returns them without duplicates.
func sortKeys(keys []ledger.Key) []ledger.Key {
	slices.SortFunc(keys, func(x, y ledger.Key) int {
		return cmp.Or(cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return slices.Compact(keys)
}

// nameOwners names the first owners, as far as a reader in a place may know them, and
// counts the others.
func nameOwners(keys []ledger.Key, total int, place string) string {
	keys = sortKeys(keys)
	var names []string
	for _, k := range keys[:min(len(keys), maxNamedOwners)] {
		names = append(names, k.SeenFrom(place))
	}
	if more := total - len(names); more > 0 {
		names = append(names, fmt.Sprintf("by %d more", more))
	}
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
