package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
)

// updateUnreadable updates l.unreadable: the resources that the journal lists and this
// replica cannot count, as this release does not know the resource, or as the API server
// denies reading it and this replica has not observed the listed version.
func (l *Ledger) updateUnreadable(source Source, snapshot journal.Snapshot) {
	l.unreadable.Update(time.Now(), snapshot, func(resource string, version uint64) bool {
		return !l.isCounted(resource) || source.ReadAccess(resource).Denied != nil && source.AppliedVersion(resource) < version
	})
}

var errUnknownResource = errors.New("this release does not know the resource")

// isCounted reports whether this release counts a resource.
func (l *Ledger) isCounted(resource string) bool {
	return slices.Contains(l.countedResources(), resource)
}

// checkMayLead returns why this replica must not lead with a journal yet: stored objects
// that the replica cannot count may own addresses.
func (l *Ledger) checkMayLead(ctx context.Context, source Source, snapshot journal.Snapshot) error {
	l.updateUnreadable(source, snapshot)
	for _, resource := range slices.Sorted(maps.Keys(l.unreadable)) {
		why := errUnknownResource
		if l.isCounted(resource) {
			if why = source.ReadAccess(resource).Denied; why == nil { // the right was restored a moment ago
				continue
			}
		} else {
			switch stored, err := source.HasObjects(ctx, resource); {
			case err != nil:
				why = fmt.Errorf("%w, and: %w", why, err)
			case stored:
				return fmt.Errorf("objects of %s are stored, and %w: nothing is granted, since these objects may own addresses. Run the release that serves them, or delete them", resource, why)
			default:
				continue
			}
		}
		if !l.unreadable.HasExpired(time.Now(), resource, snapshot.Applied[resource], l.cfg.GrantLife) {
			return fmt.Errorf("objects of %s may own addresses and cannot be counted: %w. If this lasts, their addresses may be allocated again from %s on",
				resource, why, l.unreadable.Since(resource).Add(l.cfg.GrantLife).UTC().Format(time.RFC3339))
		}
		l.cfg.Log.Info("Objects that cannot be read are not counted: their addresses may be allocated again", "resource", resource, "reason", why.Error())
	}
	return nil
}

// checkReadAccess updates which resources can be read, and logs what needs attention.
func (l *Ledger) checkReadAccess(source Source) {
	denied := map[string]error{}
	for _, resource := range l.countedResources() {
		denied[resource] = source.ReadAccess(resource).Denied
	}
	var stored map[string]int
	l.withState(func(s *state.State) {
		for resource, err := range denied {
			s.SetReadDenied(l.now(), resource, err)
		}
		if stored = s.UnservedCounts(); !s.MayGrant() {
			for resource := range stored {
				stored[resource] = 0
			}
		}
	})
	l.cfg.Metrics.setUncounted(stored, denied)
	for _, text := range l.Warnings() {
		resource, _, _ := strings.Cut(text, ":")
		if l.shouldLogWithin(resource, "", remindEvery) {
			l.cfg.Log.Info("Needs attention", "what", text)
		}
	}
}

// Warnings lists the conditions that need attention although this replica can serve:
// resources that cannot be read, and owners of APIs that are switched off. Each text
// begins with the name of the resource.
func (l *Ledger) Warnings() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for resource, err := range l.state.ReadDenials() {
		list = append(list, fmt.Sprintf("%s: the API server denies reading it, nothing is allocated for it, and the objects observed before still own their addresses: %v", resource, err))
	}
	for resource, n := range l.state.UnservedCounts() {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s: its API is switched off, and its stored objects still own their addresses (%s): switch the API on, or delete the objects and remove their finalizers by hand", resource, allocator.Counted(n, "object")))
		}
	}
	if !l.recordsDenied.IsZero() {
		list = append(list, "configmaps: the API server denies reading the records of moved ranges: grant the manager the rights of its Role")
	}
	for _, err := range l.state.RecordFaults() {
		list = append(list, fmt.Sprintf("configmaps: a pool allocates nothing: %v", err))
	}
	slices.Sort(list)
	return list
}
