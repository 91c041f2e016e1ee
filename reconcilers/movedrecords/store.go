// Package movedrecords stores moved records: the ranges of a pool that moved to other
// clusters, in ConfigMaps in the manager's namespace. The cooldown list in the
// annotations of a pool has little room, and is lost when an update of the pool drops the
// annotation (kubectl replace). The ledger keeps the ranges in the moved records from
// being allocated, so a writer of the ConfigMaps decides which addresses are free.
package movedrecords

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	"butlerlabs.dev/ipam/allocator/ledger"
)

const (
	// maxPart bounds the ranges of one ConfigMap. A range takes at most 600 bytes, and a
	// ConfigMap has at most 1 MiB.
	maxPart = 1500
	page    = 100
)

// Store stores moved records. A nil Store has no records. Store is safe for concurrent
// use.
type Store struct {
	maps corev1client.ConfigMapInterface
}

// New returns the Store of a namespace.
func New(client corev1client.ConfigMapsGetter, namespace string) *Store {
	return &Store{client.ConfigMaps(namespace)}
}

// ReadAll reads the moved records of every pool by a consistent read.
func (s *Store) ReadAll(ctx context.Context) ([]ledger.MovedRecord, error) {
	return s.list(ctx, poolrecord.LabelMoved)
}

// ReadPool reads the moved record of a pool by a consistent read. Without a stored
// ConfigMap the record has no parts.
func (s *Store) ReadPool(ctx context.Context, pool ledger.Key, uid string) (ledger.MovedRecord, error) {
	all, err := s.list(ctx, poolrecord.LabelMoved+"="+uid)
	for _, r := range all {
		if r.Pool == pool {
			return r, err
		}
	}
	return ledger.MovedRecord{Pool: pool, UID: uid}, err
}

func (s *Store) list(ctx context.Context, selector string) ([]ledger.MovedRecord, error) {
	if s == nil {
		return nil, nil
	}
	found := map[string]*ledger.MovedRecord{}
	options := metav1.ListOptions{LabelSelector: selector, Limit: page}
	for {
		list, err := s.maps.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			read(&list.Items[i], found)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	var all []ledger.MovedRecord
	for _, r := range found {
		slices.SortFunc(r.Parts, func(x, y ledger.MovedRecordPart) int { return strings.Compare(x.Name, y.Name) })
		all = append(all, *r)
	}
	return all, nil
}

// read adds a ConfigMap to the moved record of the pool. A ConfigMap that cannot be
// decoded is a fault of the record: the ranges are not known.
func read(m *corev1.ConfigMap, found map[string]*ledger.MovedRecord) {
	uid := m.Labels[poolrecord.LabelMoved]
	r := found[uid]
	if r == nil {
		r = &ledger.MovedRecord{UID: uid}
		found[uid] = r
	}
	pool, moved, err := poolrecord.ReadMoved(m)
	if pool != (ledger.Key{}) {
		r.Pool = pool
	}
	if err != nil {
		r.Fault = fmt.Errorf("ConfigMap %s/%s cannot be read: correct it, or delete it if none of its ranges is in use in another cluster: %w", m.Namespace, m.Name, err)
		return
	}
	r.Parts = append(r.Parts, ledger.MovedRecordPart{Name: m.Name, Version: m.ResourceVersion, Moved: moved})
}

// SavePool changes the stored moved record of a pool so that the record contains the
// wanted ranges, and returns the stored record, also after a failure halfway. A conflict
// error reports that another replica has changed the record.
func (s *Store) SavePool(ctx context.Context, stored ledger.MovedRecord, want []ledger.Moved) (ledger.MovedRecord, error) {
	if s == nil {
		return stored, nil
	}
	left := map[ledger.Moved]ledger.Moved{}
	for _, m := range want {
		left[m.Identity()] = m
	}
	parts := make([]ledger.MovedRecordPart, len(stored.Parts))
	for i, p := range stored.Parts {
		parts[i] = ledger.MovedRecordPart{Name: p.Name, Version: p.Version}
		for _, m := range p.Moved {
			if now, wanted := left[m.Identity()]; wanted {
				parts[i].Moved = append(parts[i].Moved, now)
				delete(left, m.Identity())
			}
		}
	}
	for _, m := range want {
		if _, added := left[m.Identity()]; !added {
			continue
		}
		delete(left, m.Identity())
		at := slices.IndexFunc(parts, func(p ledger.MovedRecordPart) bool { return len(p.Moved) < maxPart })
		if at < 0 {
			at = len(parts)
			parts = append(parts, ledger.MovedRecordPart{Name: freeName(stored.UID, parts)})
		}
		parts[at].Moved = append(parts[at].Moved, m)
	}
	after := ledger.MovedRecord{Pool: stored.Pool, UID: stored.UID}
	var errs []error
	for i, p := range parts {
		var before ledger.MovedRecordPart
		if i < len(stored.Parts) {
			before = stored.Parts[i]
		}
		version, err := s.write(ctx, stored, before, p)
		switch {
		case err != nil:
			errs = append(errs, err)
			if before.Name != "" {
				after.Parts = append(after.Parts, before)
			}
		case len(p.Moved) > 0:
			p.Version = version
			after.Parts = append(after.Parts, p)
		}
	}
	return after, errors.Join(errs...)
}

// DeletePool deletes the moved record of the pool with this UID, which is gone, also a
// part that cannot be read.
func (s *Store) DeletePool(ctx context.Context, uid string) error {
	if s == nil {
		return nil
	}
	list, err := s.maps.List(ctx, metav1.ListOptions{LabelSelector: poolrecord.LabelMoved + "=" + uid})
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range list.Items {
		err := s.maps.Delete(ctx, m.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}})
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write replaces a part of a moved record, and returns the resourceVersion of the
// ConfigMap.
func (s *Store) write(ctx context.Context, r ledger.MovedRecord, before, p ledger.MovedRecordPart) (version string, err error) {
	if before.Name != "" && slices.Equal(before.Moved, p.Moved) {
		return before.Version, nil
	}
	if len(p.Moved) == 0 {
		err := s.maps.Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &p.Version}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return "", err
	}
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:        p.Name,
			Labels:      map[string]string{poolrecord.LabelMoved: r.UID, "app.kubernetes.io/managed-by": "butler-ipam"},
			Annotations: map[string]string{poolrecord.AnnotationMovedPool: r.Pool.Resource + "/" + r.Pool.Namespace + "/" + r.Pool.Name},
		},
		Data: map[string]string{poolrecord.KeyMoved: poolrecord.FormatMoved(p.Moved)},
	}
	if before.Name == "" {
		m, err = s.maps.Create(ctx, m, metav1.CreateOptions{})
	} else {
		m.ResourceVersion = p.Version
		m, err = s.maps.Update(ctx, m, metav1.UpdateOptions{})
	}
	if err != nil {
		return "", err
	}
	return m.ResourceVersion, nil
}

func freeName(uid string, parts []ledger.MovedRecordPart) string {
	for n := 0; ; n++ {
		name := fmt.Sprintf("butler-ipam-moved-%s-%d", uid, n)
		if !slices.ContainsFunc(parts, func(p ledger.MovedRecordPart) bool { return p.Name == name }) {
			return name
		}
	}
}
