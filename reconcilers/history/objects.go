package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/historyrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const (
	// writeAttempts bounds the failed attempts of a Store. An attempt fails if an earlier
	// leader has written the same object.
	writeAttempts = 3
	// maxLastParts bounds the number of objects in memory.
	maxLastParts = 500
	listPage     = 500
	dayFormat    = "2006-01-02"
)

// Limits bound the objects of a pool and a day. A zero field means the default.
type Limits struct {
	Bytes int   // bytes of compressed records of an object; default 64 KiB
	Parts int32 // number of objects; default 100
}

// Objects stores records in AllocationHistories: one object for each pool and each day,
// followed by further objects whenever the last object is full. Objects is safe for
// concurrent use.
type Objects struct {
	client    client.Client
	live      client.Reader
	namespace string
	limits    Limits

	mu   sync.Mutex
	last map[string]*butlerv1.AllocationHistory // pool -> newest stored object of the pool
}

// NewObjects returns Objects that stores in a namespace.
func NewObjects(c client.Client, live client.Reader, namespace string, limits Limits) *Objects {
	if limits.Bytes == 0 {
		limits.Bytes = 64 << 10
	}
	if limits.Parts == 0 {
		limits.Parts = 100
	}
	return &Objects{client: c, live: live, namespace: namespace, limits: limits, last: map[string]*butlerv1.AllocationHistory{}}
}

// versions maps a resource to a resourceVersion.
type versions map[string]uint64

func (v versions) reach(resource string, version uint64) { v[resource] = max(v[resource], version) }

// raise raises each version to at least its value in others.
func (v versions) raise(others versions) {
	for resource, version := range others {
		v.reach(resource, version)
	}
}

// errNoRoom reports that the objects of a pool and a day are full. The last object is
// marked as incomplete.
var errNoRoom = errors.New("the AllocationHistories of the pool have no room for more records today")

// Store appends records of a pool to the objects of a day, and returns the records that
// are not stored. The annotation butlerv1.AnnotationHistoryRecorded gets the versions
// recorded, if newer.
//
// If the objects of the day are full, Store drops the remaining records. Only the call
// that marks the last object as incomplete returns errNoRoom.
func (s *Objects) Store(ctx context.Context, pool, day string, records []historyrecord.Record, recorded versions) (left []historyrecord.Record, err error) {
	failed := 0
	for len(records) > 0 {
		stored, full, err := s.storeSome(ctx, pool, day, records, recorded)
		switch {
		case full:
			return nil, err
		case err == nil:
			records = records[stored:]
			continue
		}
		s.forget(pool)
		if failed++; failed == writeAttempts || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return records, err
		}
	}
	return nil, nil
}

// storeSome stores the first records in the last object; if the last object is full, in a
// new object. full reports that the limits permit no further object.
func (s *Objects) storeSome(ctx context.Context, pool, day string, records []historyrecord.Record, recorded versions) (stored int, full bool, err error) {
	before, err := s.lastPart(ctx, pool, day)
	if err != nil {
		return 0, false, err
	}
	if before.Spec.Incomplete {
		return 0, true, nil
	}
	o := before.DeepCopy()
	data, n, err := historyrecord.AppendRecords(o.Spec.Records, records, s.limits.Bytes)
	switch {
	case err != nil: // the records are invalid, as after a manual change: leave the object unchanged
		o = s.newPart(pool, day, o.Spec.Part+1)
		data, n, err = historyrecord.AppendRecords(nil, records, s.limits.Bytes)
	case n == 0 && o.Spec.Part+1 < s.limits.Parts && len(o.Spec.Records) > 0:
		o = s.newPart(pool, day, o.Spec.Part+1)
		data, n, err = historyrecord.AppendRecords(nil, records, s.limits.Bytes)
	}
	if err != nil {
		return 0, false, err
	}
	if n == 0 {
		o.Spec.Incomplete = true
	}
	o.Spec.Records = data
	o.Spec.Count += int32(n)
	newest := recordedIn(o)
	newest.raise(recorded)
	text, _ := json.Marshal(newest) // strings and numbers: never fails
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, butlerv1.AnnotationHistoryRecorded, string(text))
	if o.ResourceVersion == "" {
		err = s.client.Create(ctx, o)
	} else {
		err = s.client.Update(ctx, o)
	}
	if err != nil {
		return 0, false, err
	}
	s.remember(pool, o)
	if n == 0 {
		return 0, true, errNoRoom
	}
	return n, false, nil
}

// newPart returns an object that is not yet stored.
func (s *Objects) newPart(pool, day string, part int32) *butlerv1.AllocationHistory {
	name := baseName(pool, day)
	if part > 0 {
		name += "-" + strconv.Itoa(int(part))
	}
	return &butlerv1.AllocationHistory{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name,
			Labels: map[string]string{butlerv1.LabelHistoryDay: day, butlerv1.LabelHistoryPool: hash(pool), "app.kubernetes.io/managed-by": "butler-ipam"},
		},
		Spec: butlerv1.AllocationHistorySpec{Pool: pool, Day: day, Part: part},
	}
}

// maxReadableName bounds the length of the name of the pool in the name of an object.
const maxReadableName = 200

// baseName returns the name of the first object of a pool and a day. The names of further
// objects have a number as suffix.
func baseName(pool, day string) string {
	readable := strings.ToLower(strings.ReplaceAll(pool, "/", "."))
	readable = strings.TrimRight(readable[:min(len(readable), maxReadableName)], "-.")
	return strings.TrimLeft(readable+"-"+hash(pool)+"-"+day, "-")
}

func hash(pool string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(pool)) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

// lastPart returns the newest object of a pool and a day, or a new object if no object is
// stored.
func (s *Objects) lastPart(ctx context.Context, pool, day string) (*butlerv1.AllocationHistory, error) {
	s.mu.Lock()
	known := s.last[pool]
	s.mu.Unlock()
	if known != nil && known.Spec.Day == day {
		return known, nil
	}
	base, part := baseName(pool, day), int32(-1)
	err := s.each(ctx, client.MatchingLabels{butlerv1.LabelHistoryPool: hash(pool), butlerv1.LabelHistoryDay: day}, func(o *metav1.PartialObjectMetadata) error {
		if suffix, isOf := strings.CutPrefix(o.Name, base); isOf {
			n, _ := strconv.ParseInt(strings.TrimPrefix(suffix, "-"), 10, 32) // 0 for the first object, whose name has no number
			part = max(part, int32(n))
		}
		return nil
	})
	if err != nil || part < 0 {
		return s.newPart(pool, day, 0), err
	}
	o := &butlerv1.AllocationHistory{}
	return o, s.live.Get(ctx, client.ObjectKeyFromObject(s.newPart(pool, day, part)), o)
}

func (s *Objects) remember(pool string, o *butlerv1.AllocationHistory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.last) >= maxLastParts {
		clear(s.last)
	}
	s.last[pool] = o
}

func (s *Objects) forget(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, pool)
}

// each passes the metadata of the selected objects to f, page by page.
func (s *Objects) each(ctx context.Context, of client.ListOption, f func(*metav1.PartialObjectMetadata) error) error {
	next := ""
	for {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(butlerv1.GroupVersion.WithKind("AllocationHistoryList"))
		if err := s.live.List(ctx, list, client.InNamespace(s.namespace), of, client.Limit(listPage), client.Continue(next)); err != nil {
			return err
		}
		for i := range list.Items {
			if err := f(&list.Items[i]); err != nil {
				return err
			}
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// Recorded returns the newest versions in the annotations of the objects of these days.
// The objects contain every allocation and release up to these versions.
func (s *Objects) Recorded(ctx context.Context, days ...string) (all versions, err error) {
	ofDays, err := labels.NewRequirement(butlerv1.LabelHistoryDay, selection.In, days)
	if err != nil {
		return nil, err
	}
	all = versions{}
	return all, s.each(ctx, client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*ofDays)}, func(o *metav1.PartialObjectMetadata) error {
		all.raise(recordedIn(o))
		return nil
	})
}

// recordedIn returns the versions in the annotation of an object; no versions if the
// annotation is missing or not readable.
func recordedIn(o metav1.Object) versions {
	recorded := versions{}
	if json.Unmarshal([]byte(o.GetAnnotations()[butlerv1.AnnotationHistoryRecorded]), &recorded) != nil || recorded == nil {
		return versions{}
	}
	return recorded
}

// DeleteBefore deletes the objects of the days before a day, including the objects of
// deleted pools.
func (s *Objects) DeleteBefore(ctx context.Context, day string) (n int, err error) {
	return n, s.each(ctx, client.HasLabels{butlerv1.LabelHistoryDay}, func(o *metav1.PartialObjectMetadata) error {
		if o.Labels[butlerv1.LabelHistoryDay] >= day {
			return nil
		}
		gone := &butlerv1.AllocationHistory{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
		err := s.client.Delete(ctx, gone, client.Preconditions{UID: &o.UID})
		if err == nil {
			n++
		}
		return client.IgnoreNotFound(err)
	})
}
