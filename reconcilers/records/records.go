// Package records stores which ranges of a pool went to other clusters, in ConfigMaps in the manager's own namespace: the annotations of a pool have
// little room, and are lost when somebody replaces the pool. Ranges are given by these records, so who may write them decides what is free.
package records

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

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
)

const (
	// labelPool is on each ConfigMap: the UID of the pool.
	labelPool = "butler.butlerlabs.dev/moved-ranges-of"
	// annotationPool is the pool in words: kind/namespace/name.
	annotationPool = "butler.butlerlabs.dev/pool"
	key            = "moved"
	// maxPart bounds the ranges of one ConfigMap. Each takes 600 bytes at most, and a ConfigMap 1 MiB.
	maxPart = 1500
	page    = 100
)

// Store is where the records are. It is safe for concurrent use; a nil one has none.
type Store struct {
	maps corev1client.ConfigMapInterface
}

// New is the store in a namespace.
func New(client corev1client.ConfigMapsGetter, namespace string) *Store {
	return &Store{client.ConfigMaps(namespace)}
}

// All reads the records of all pools, consistently.
func (s *Store) All(ctx context.Context) ([]ledger.Record, error) { return s.list(ctx, labelPool) }

// Of reads the record of a pool, consistently; without parts where there is none.
func (s *Store) Of(ctx context.Context, pool ledger.Key, uid string) (ledger.Record, error) {
	all, err := s.list(ctx, labelPool+"="+uid)
	for _, r := range all {
		if r.Pool == pool {
			return r, err
		}
	}
	return ledger.Record{Pool: pool, UID: uid}, err
}

func (s *Store) list(ctx context.Context, selector string) ([]ledger.Record, error) {
	if s == nil {
		return nil, nil
	}
	found := map[string]*ledger.Record{}
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
	var all []ledger.Record
	for _, r := range found {
		slices.SortFunc(r.Parts, func(x, y ledger.RecordPart) int { return strings.Compare(x.Name, y.Name) })
		all = append(all, *r)
	}
	return all, nil
}

// read adds a ConfigMap to the record of its pool. One that cannot be read is a fault of that record: its ranges are not known.
func read(m *corev1.ConfigMap, found map[string]*ledger.Record) {
	uid := m.Labels[labelPool]
	r := found[uid]
	if r == nil {
		r = &ledger.Record{UID: uid}
		found[uid] = r
	}
	moved, err := fields.ReadMoved(m.Data[key])
	if pool := strings.Split(m.Annotations[annotationPool], "/"); len(pool) == 3 {
		r.Pool = ledger.Key{Kind: pool[0], Namespace: pool[1], Name: pool[2]}
	} else if err == nil {
		err = fmt.Errorf("annotation %s is %q, want kind/namespace/name", annotationPool, m.Annotations[annotationPool])
	}
	if err != nil {
		r.Fault = fmt.Errorf("ConfigMap %s/%s cannot be read: correct it, or delete it if none of its ranges is in use in another cluster: %w", m.Namespace, m.Name, err)
		return
	}
	r.Parts = append(r.Parts, ledger.RecordPart{Name: m.Name, Version: m.ResourceVersion, Moved: moved})
}

// Save changes what is stored of a pool into the wanted ranges, and gives what is stored then, also where it fails on the way. An error that is a
// conflict says that another has changed the record.
func (s *Store) Save(ctx context.Context, stored ledger.Record, want []ledger.Moved) (ledger.Record, error) {
	if s == nil {
		return stored, nil
	}
	left := map[ledger.Moved]ledger.Moved{}
	for _, m := range want {
		left[m.Identity()] = m
	}
	parts := make([]ledger.RecordPart, len(stored.Parts))
	for i, p := range stored.Parts {
		parts[i] = ledger.RecordPart{Name: p.Name, Version: p.Version}
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
		at := slices.IndexFunc(parts, func(p ledger.RecordPart) bool { return len(p.Moved) < maxPart })
		if at < 0 {
			at = len(parts)
			parts = append(parts, ledger.RecordPart{Name: freeName(stored.UID, parts)})
		}
		parts[at].Moved = append(parts[at].Moved, m)
	}
	after := ledger.Record{Pool: stored.Pool, UID: stored.UID}
	var errs []error
	for i, p := range parts {
		var before ledger.RecordPart
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

// write stores a part in the place of the one before, and gives its version.
func (s *Store) write(ctx context.Context, r ledger.Record, before, p ledger.RecordPart) (version string, err error) {
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
			Labels:      map[string]string{labelPool: r.UID, "app.kubernetes.io/managed-by": "butler-ipam"},
			Annotations: map[string]string{annotationPool: r.Pool.Kind + "/" + r.Pool.Namespace + "/" + r.Pool.Name},
		},
		Data: map[string]string{key: fields.MovedText(p.Moved)},
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

func freeName(uid string, parts []ledger.RecordPart) string {
	for n := 0; ; n++ {
		name := fmt.Sprintf("butler-ipam-moved-%s-%d", uid, n)
		if !slices.ContainsFunc(parts, func(p ledger.RecordPart) bool { return p.Name == name }) {
			return name
		}
	}
}
