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

// LeaseName is the name of the Lease that contains the journal.
const LeaseName = "butler-ipam-journal"

// Annotations of the Lease: the encoded snapshot in base64, the commit number, and the
// snapshot's unserved resources if the list is not empty. The list of unserved resources
// begins with the number of the commit that wrote it: a replica of an earlier release
// does not know the annotation, and leaves it unchanged when it commits. A list whose
// number is not that of the stored commit is ignored.
const (
	annotationSnapshot = "butler.butlerlabs.dev/journal"
	annotationCommit   = "butler.butlerlabs.dev/journal-commit"
	annotationUnserved = "butler.butlerlabs.dev/journal-unserved"
)

// MaxEncoded is the largest encoded snapshot in bytes: in base64 it leaves room for other
// annotations below the API server's limit of 262,144 bytes for one object. It has room
// for about 6,000 entries of one IPv4 range each.
const MaxEncoded = 190_000

// ErrConflict reports that a write failed because the stored journal is not the revision
// that the write was to replace.
var ErrConflict = errors.New("journal has changed since it was read")

// Store keeps the journal. Read and Write see the latest state, never a cached state.
type Store interface {
	// Read returns the stored revision, or a zero Revision if the journal does not exist.
	Read(ctx context.Context) (Revision, error)
	// Write replaces the revision with the resourceVersion in v ("" creates the journal)
	// and returns the new resourceVersion. ErrConflict: the write did not land. After any
	// other error the write may have landed, or may still land.
	Write(ctx context.Context, v Revision) (string, error)
}

// LeaseStore keeps the journal on a Lease of the API server.
type LeaseStore struct {
	leases   coordinationclient.LeaseInterface
	duration time.Duration // expiry of the journal, written to the Lease for human readers
	// Now is the clock of the times on the Lease, which only human readers use. Now may
	// be set before the first write.
	Now func() time.Time

	mu   sync.Mutex
	last *coordinationv1.Lease // as last read or written; a write keeps its labels and its annotations of other authors
}

// NewLeaseStore returns a store with its own client, because creates wait for the store's
// writes: protobuf, no client-side throttling, HTTP/1.1. With one call at a time HTTP/1.1
// costs a tenth less than HTTP/2, and a cancelled call closes a dead connection at once.
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
func (s *LeaseStore) Read(ctx context.Context) (Revision, error) {
	lease, err := s.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.rememberLease(nil)
		return Revision{}, nil
	}
	if err != nil {
		return Revision{}, err
	}
	s.rememberLease(lease)
	return DecodeLease(lease)
}

// Write implements Store.
func (s *LeaseStore) Write(ctx context.Context, v Revision) (string, error) {
	lease := s.renderLease(v)
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
	s.rememberLease(stored)
	return stored.ResourceVersion, nil
}

func (s *LeaseStore) rememberLease(l *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = l
}

// renderLease returns the Lease as last seen, with the content of v.
func (s *LeaseStore) renderLease(v Revision) *coordinationv1.Lease {
	s.mu.Lock()
	lease := s.last.DeepCopy()
	s.mu.Unlock()
	if lease == nil || v.ResourceVersion == "" {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName}}
	}
	lease.ResourceVersion = v.ResourceVersion
	if len(lease.ManagedFields) > 0 {
		// One empty entry removes the managed fields for good. The Lease is never
		// applied, and managed fields cost a tenth of every commit.
		lease.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[annotationSnapshot] = base64.StdEncoding.EncodeToString(v.Encode())
	commit := strconv.FormatUint(v.Commit, 10)
	lease.Annotations[annotationCommit] = commit
	if len(v.Unserved) > 0 {
		lease.Annotations[annotationUnserved] = strings.Join(append([]string{commit}, v.Unserved...), " ")
	} else {
		delete(lease.Annotations, annotationUnserved)
	}
	now := metav1.NewMicroTime(s.Now())
	if leader := ptr.Deref(lease.Spec.HolderIdentity, ""); leader != v.Leader || lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity = &v.Leader
	lease.Spec.LeaseTransitions = ptr.To(int32(v.Term))
	lease.Spec.LeaseDurationSeconds = ptr.To(max(1, int32(s.duration.Seconds())))
	lease.Spec.RenewTime = &now
	return lease
}

// DecodeLease returns the revision that a Lease contains. Errors wrap ErrFormat for a
// journal of a later release. The leader and the term are known also with an error.
func DecodeLease(lease *coordinationv1.Lease) (Revision, error) {
	v := Revision{
		ResourceVersion: lease.ResourceVersion,
		Leader:          ptr.Deref(lease.Spec.HolderIdentity, ""),
		Term:            int64(ptr.Deref(lease.Spec.LeaseTransitions, 0)),
	}
	text, there := lease.Annotations[annotationSnapshot]
	if !there {
		// A user created or emptied the Lease by hand: the open grants are not known.
		v.Leader, v.Quarantine = "", true
		return v, nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return v, corruptLeaseError(lease, annotationSnapshot, fmt.Errorf("%w: %w", errCorrupt, err))
	}
	if v.Snapshot, err = Decode(b); err != nil {
		return v, corruptLeaseError(lease, annotationSnapshot, err)
	}
	if v.Commit, err = strconv.ParseUint(lease.Annotations[annotationCommit], 10, 64); err != nil {
		return v, corruptLeaseError(lease, annotationCommit, fmt.Errorf("%w: %w", errCorrupt, err))
	}
	if unserved := strings.Fields(lease.Annotations[annotationUnserved]); len(unserved) > 0 && unserved[0] == lease.Annotations[annotationCommit] {
		v.Unserved = unserved[1:]
	}
	return v, nil
}

// corruptLeaseError names the Lease and the annotation that cannot be read, and for a
// corrupt annotation (not for a newer format) the remedy.
func corruptLeaseError(lease *coordinationv1.Lease, annotation string, err error) error {
	err = fmt.Errorf("Lease %s/%s, annotation %s: %w", lease.Namespace, lease.Name, annotation, err) //nolint:staticcheck // a kind
	if errors.Is(err, errCorrupt) {
		err = fmt.Errorf("%w: restore the annotation, or delete the Lease: then nothing is granted for one grant life, and all stored objects are counted again", err)
	}
	return err
}
