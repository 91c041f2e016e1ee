package reconcilers

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// statusBody is the body of a write of an object's status: the status, and metadata without managedFields. The API server replaces everything but the
// status by what is stored, but before version 1.36 a label, annotation or finalizer that the body lacks is lost to the managers that applied it.
type statusBody struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            any `json:"status"`
}

// statuses writes statuses. Mutating admission sees the body as it is sent: where that is refused, somebody there may want all of the object, which is
// sent from then on. It is safe for concurrent use.
type statuses struct {
	mu    sync.Mutex
	whole map[types.UID]struct{}
}

// maxWhole bounds the objects that are remembered.
const maxWhole = 10_000

func (s *statuses) isWhole(o client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, whole := s.whole[o.GetUID()]
	return whole
}

func (s *statuses) setWhole(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole == nil || len(s.whole) >= maxWhole {
		s.whole = map[types.UID]struct{}{}
	}
	s.whole[o.GetUID()] = struct{}{}
}

// put writes an object's status.
func (s *statuses) put(ctx context.Context, to client.Client, o client.Object) error {
	if s.isWhole(o) {
		return to.Status().Update(ctx, o)
	}
	body, err := statusBodyOf(o, to.Scheme())
	if err != nil {
		return err
	}
	err = to.Status().Update(ctx, o, client.WithSubResourceBody(body))
	if (refused(err) || apierrors.IsInternalError(err)) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		s.setWhole(o)
		return to.Status().Update(ctx, o)
	}
	o.SetResourceVersion(body.ResourceVersion)
	return err
}

func statusBodyOf(o client.Object, scheme *runtime.Scheme) (*statusBody, error) {
	fields := reflect.ValueOf(o).Elem()
	b := &statusBody{ObjectMeta: fields.FieldByName("ObjectMeta").Interface().(metav1.ObjectMeta), Status: fields.FieldByName("Status").Interface()}
	b.ManagedFields = nil
	gvk, err := apiutil.GVKForObject(o, scheme)
	b.SetGroupVersionKind(gvk)
	return b, err
}

// UnmarshalJSON reads the new version from the answer. The maps and lists of the metadata are those of the object.
func (b *statusBody) UnmarshalJSON(answer []byte) error {
	var stored struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err := json.Unmarshal(answer, &stored)
	b.ResourceVersion = stored.Metadata.ResourceVersion
	return err
}

// DeepCopyObject implements runtime.Object.
func (b *statusBody) DeepCopyObject() runtime.Object {
	c := *b
	return &c
}
