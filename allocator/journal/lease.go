package journal

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// LeaseName is the Lease that holds the journal.
const LeaseName = "butler-ipam-journal"

// Annotations of the Lease: the encoded record in base64, the commit number, and the record's unserved kinds where it has some. The last one begins
// with the number of its commit: an earlier release keeps the annotation as it is, and with a later commit it counts no more.
const (
	annotationRecord   = "butler.butlerlabs.dev/journal"
	annotationCommit   = "butler.butlerlabs.dev/journal-commit"
	annotationUnserved = "butler.butlerlabs.dev/journal-unserved"
)

// MaxEncoded is the largest record in bytes: as base64 it leaves room for others below the 262,144 bytes that the annotations of
// one object may have. It is about 6,000 lines of an IPv4 range each.
const MaxEncoded = 190_000

// ErrConflict says that the journal is no longer the version that a write was to replace.
var ErrConflict = errors.New("journal was written by somebody else")

// Store keeps the journal. Both calls see the latest state, never a cached one.
type Store interface {
	// Read gives the stored version, a zero Version where there is none.
	Read(ctx context.Context) (Version, error)
	// Write replaces the version whose ResourceVersion v carries ("" creates it) and gives the new ResourceVersion.
	// ErrConflict says that it did not land; after any other error it may have landed, or may yet.
	Write(ctx context.Context, v Version) (string, error)
}

// LeaseStore keeps the journal on a Lease of the API server.
type LeaseStore struct {
	leases   coordinationclient.LeaseInterface
	duration time.Duration // after which others may take over, for people who read the Lease
	// Now is the clock of the times on the Lease, which are for people too. It is set before the first write, if at all.
	Now func() time.Time

	mu   sync.Mutex
	last *coordinationv1.Lease // as last read or written: what others wrote on it (labels, annotations) is kept
}

// NewLeaseStore makes a client of its own, as a commit stands in the way of a create: protobuf, and no throttling on the client's side. HTTP/1.1 suits it
// best: with one call at a time it costs a tenth less than HTTP/2, and leaves a dead connection as soon as a call gives it up.
func NewLeaseStore(config *rest.Config, namespace string, duration time.Duration) (*LeaseStore, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("journal client: %w", err)
	}
	return &LeaseStore{leases: client.Leases(namespace), duration: duration, Now: time.Now}, nil
}

// Read implements Store.
func (s *LeaseStore) Read(ctx context.Context) (Version, error) {
	lease, err := s.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.remember(nil)
		return Version{}, nil
	}
	if err != nil {
		return Version{}, err
	}
	s.remember(lease)
	return decodeLease(lease)
}

// Write implements Store.
func (s *LeaseStore) Write(ctx context.Context, v Version) (string, error) {
	lease := s.lease(v)
	var stored *coordinationv1.Lease
	var err error
	if v.ResourceVersion == "" {
		stored, err = s.leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		stored, err = s.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return "", fmt.Errorf("%w: %w", ErrConflict, err)
	case err != nil:
		return "", err
	}
	s.remember(stored)
	return stored.ResourceVersion, nil
}

func (s *LeaseStore) remember(l *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = l
}

// lease renders v onto the Lease as last seen.
func (s *LeaseStore) lease(v Version) *coordinationv1.Lease {
	s.mu.Lock()
	lease := s.last.DeepCopy()
	s.mu.Unlock()
	if lease == nil || v.ResourceVersion == "" {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName}}
	}
	lease.ResourceVersion = v.ResourceVersion
	if len(lease.ManagedFields) > 0 {
		// One empty entry takes them away for good: for a record that nobody applies, keeping them costs a tenth of every commit.
		lease.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[annotationRecord] = base64.StdEncoding.EncodeToString(v.Encode())
	commit := strconv.FormatUint(v.Commit, 10)
	lease.Annotations[annotationCommit] = commit
	if len(v.Unserved) > 0 {
		lease.Annotations[annotationUnserved] = strings.Join(append([]string{commit}, v.Unserved...), " ")
	} else {
		delete(lease.Annotations, annotationUnserved)
	}
	now := metav1.NewMicroTime(s.Now())
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != v.Holder || lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity = &v.Holder
	lease.Spec.LeaseTransitions = ptr.To(int32(v.Epoch))
	lease.Spec.LeaseDurationSeconds = ptr.To(max(1, int32(s.duration.Seconds())))
	lease.Spec.RenewTime = &now
	return lease
}

func decodeLease(lease *coordinationv1.Lease) (Version, error) {
	v := Version{
		ResourceVersion: lease.ResourceVersion,
		Holder:          ptr.Deref(lease.Spec.HolderIdentity, ""),
		Epoch:           int64(ptr.Deref(lease.Spec.LeaseTransitions, 0)),
	}
	text, there := lease.Annotations[annotationRecord]
	if !there {
		// Somebody made or emptied the Lease by hand: what it promised is not known.
		v.Holder, v.Quarantine = "", true
		return v, nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return v, illegible(lease, annotationRecord, fmt.Errorf("%w: %w", errCorrupt, err))
	}
	if v.Record, err = Decode(b); err != nil {
		return v, illegible(lease, annotationRecord, err)
	}
	if v.Commit, err = strconv.ParseUint(lease.Annotations[annotationCommit], 10, 64); err != nil {
		return v, illegible(lease, annotationCommit, fmt.Errorf("%w: %w", errCorrupt, err))
	}
	if unserved := strings.Fields(lease.Annotations[annotationUnserved]); len(unserved) > 0 && unserved[0] == lease.Annotations[annotationCommit] {
		v.Unserved = unserved[1:]
	}
	return v, nil
}

// illegible says where on a Lease what cannot be read stands, and what to do where it is no newer release that wrote it.
func illegible(lease *coordinationv1.Lease, annotation string, err error) error {
	err = fmt.Errorf("Lease %s/%s, annotation %s: %w", lease.Namespace, lease.Name, annotation, err) //nolint:staticcheck // a kind
	if errors.Is(err, errCorrupt) {
		err = fmt.Errorf("%w: put it back as it was, or delete the Lease: then nothing is granted for the life of a grant, and all that is stored is counted anew", err)
	}
	return err
}
