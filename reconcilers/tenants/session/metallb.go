package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/remote"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// writtenPool is what this session last wrote to the tenant's IPAddressPool.
type writtenPool struct {
	entries []string // nil: not written yet, or changed by another writer
	version uint64   // resourceVersion after the write
}

// Bounds of the log lines that a tenant can cause again and again, by changes of
// MetalLB's objects, which are reverted, and of Services beyond its quota.
const (
	lineInterval = 10 * time.Second
	lineBurst    = 30
)

// boundedEvents returns Events to record one of these changes, without its log line
// beyond the bounds.
func (s *session) boundedEvents() report.Events {
	e := s.Events
	if !s.lines.AllowN(s.Now(), 1) {
		e.Log = logr.Discard()
	}
	return e
}

// syncMetalLB makes the tenant's IPAddressPool offer exactly the ranges of a decision,
// and the L2Advertisement announce the pool. Without ranges the pool is deleted, because
// MetalLB rejects a pool without addresses.
//
// A former leader that was suspended may decide without the blocks that its successor has
// allocated, and MetalLB takes addresses that the pool does not offer from their
// Services. So a replica proves that it led when it had decided, before it writes or
// deletes the pool.
func (s *session) syncMetalLB(ctx context.Context, c *remote.Connection, cluster *v1alpha1.TenantCluster, decision plan.Decision) error {
	if decision.KeepPool {
		return nil
	}
	entries := plan.FormatPoolEntries(decision.Offered)
	pool := c.Pool()
	observed := c.PoolVersion() >= s.written.version // the mirror includes the last write
	if drift := s.findDrift(pool, observed); drift != "" {
		s.Metrics.CountDrift(s.name)
		s.boundedEvents().RecordDrift(cluster, entriesOf(pool), drift)
	}
	if len(entries) == 0 {
		return s.deletePool(ctx, c, cluster, pool)
	}
	if err := s.writePool(ctx, c, cluster, pool, entries, observed); err != nil {
		return err
	}
	return s.writeAdvertisement(ctx, c, cluster)
}

// findDrift describes what another writer changed after the last write of this session;
// "" for no change, and while the last write is not observed.
func (s *session) findDrift(pool *unstructured.Unstructured, observed bool) string {
	switch {
	case s.written.entries == nil || !observed:
		return ""
	case pool == nil:
		s.written = writtenPool{}
		return "IPAddressPool " + plan.MetalLBPool + " was deleted"
	}
	var changes []string
	if d := plan.DescribeChange(s.written.entries, remote.PoolEntries(pool)); d != "" {
		changes = append(changes, d)
	}
	for _, f := range poolFlags {
		if value, _, _ := unstructured.NestedBool(pool.Object, "spec", f.field); value != f.value {
			changes = append(changes, fmt.Sprintf("%s is %t", f.field, value))
		}
	}
	if remote.RestrictsServices(pool) {
		changes = append(changes, "serviceAllocation is set")
	}
	if len(changes) == 0 {
		return ""
	}
	s.written = writtenPool{}
	return "IPAddressPool " + plan.MetalLBPool + " was changed: " + report.ShortenText(strings.Join(changes, ", "))
}

// poolFlags are the fields of the pool that decide whether every Service can get every
// address, with the required values.
var poolFlags = []struct {
	field string
	value bool
}{{"autoAssign", true}, {"avoidBuggyIPs", false}}

// isPoolCorrect reports whether a pool offers the entries to every Service.
func isPoolCorrect(pool *unstructured.Unstructured, entries []string) bool {
	if pool == nil || !slices.Equal(sortedCopy(remote.PoolEntries(pool)), sortedCopy(entries)) || remote.RestrictsServices(pool) {
		return false
	}
	for _, f := range poolFlags {
		if value, _, _ := unstructured.NestedBool(pool.Object, "spec", f.field); value != f.value {
			return false
		}
	}
	return true
}

func (s *session) writePool(ctx context.Context, c *remote.Connection, cluster *v1alpha1.TenantCluster, pool *unstructured.Unstructured, entries []string, observed bool) error {
	switch {
	case isPoolCorrect(pool, entries) && remote.WrittenByIPAM(pool) && observed:
		s.written = writtenPool{entries, object.ResourceVersion(pool)}
		return nil
	case !observed && slices.Equal(s.written.entries, entries):
		return nil // written, and not observed yet
	}
	before := entriesOf(pool)
	if !observed {
		before = s.written.entries
	}
	if err := s.ProveLeads(ctx); err != nil {
		return err
	}
	list := make([]any, len(entries))
	for i, e := range entries {
		list[i] = e
	}
	spec := map[string]any{"addresses": list}
	for _, f := range poolFlags {
		spec[f.field] = f.value
	}
	stored, err := c.ApplyPool(ctx, spec)
	if err != nil {
		return err
	}
	s.written = writtenPool{entries, object.ResourceVersion(stored)}
	s.Metrics.CountSync(s.name)
	change := cmp.Or(plan.DescribeChange(before, entries), "its other fields were corrected")
	s.boundedEvents().RecordPoolWritten(cluster, entries, change)
	return nil
}

// writeAdvertisement makes the L2Advertisement name the pool. Drift is recorded once
// until the advertisement is observed to be correct again. The pools that the
// advertisement named before this session first observed it to be correct remain
// announced.
func (s *session) writeAdvertisement(ctx context.Context, c *remote.Connection, cluster *v1alpha1.TenantCluster) error {
	drift := "was deleted"
	names := []string{plan.MetalLBPool}
	if a := c.Advertisement(); a != nil {
		announced, all := remote.AnnouncedPools(a)
		if all || slices.Contains(announced, plan.MetalLBPool) {
			s.advertised, s.advertisementDrift = true, false
			return nil
		}
		drift = "did not name pool " + plan.MetalLBPool
		if !s.advertised {
			names = append(announced, plan.MetalLBPool)
		}
	}
	if s.advertised && !s.advertisementDrift {
		s.advertisementDrift = true
		s.Metrics.CountDrift(s.name)
		s.boundedEvents().RecordDrift(cluster, s.written.entries, fmt.Sprintf("L2Advertisement %s %s", remote.AdvertisementName, drift))
	}
	return c.ApplyAdvertisement(ctx, names...)
}

// deletePool deletes the pool if IPAM has written to it. The advertisement stays: without
// its pool it has no effect.
func (s *session) deletePool(ctx context.Context, c *remote.Connection, cluster *v1alpha1.TenantCluster, pool *unstructured.Unstructured) error {
	if pool == nil || !remote.WrittenByIPAM(pool) {
		return nil
	}
	if err := s.ProveLeads(ctx); err != nil {
		return err
	}
	err := c.DeletePool(ctx, pool)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch shows the change and triggers the next decision
	}
	if err == nil {
		s.written = writtenPool{}
		s.Metrics.CountSync(s.name)
		s.boundedEvents().RecordPoolWritten(cluster, nil, plan.DescribeChange(entriesOf(pool), nil))
	}
	return err
}

// entriesOf returns the entries of a pool; none if the pool does not exist.
func entriesOf(pool *unstructured.Unstructured) []string {
	if pool == nil {
		return nil
	}
	return remote.PoolEntries(pool)
}

func sortedCopy(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}
