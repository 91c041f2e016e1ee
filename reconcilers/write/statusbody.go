package write

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

// statusBody is the body of a status write: the status, and metadata without
// managedFields. The API server takes all other fields from the stored object. Metadata
// is needed before Kubernetes 1.36: a field manager that applied a label, annotation or
// finalizer loses the ownership of a field that the body lacks.
type statusBody struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            any `json:"status"`
}

// statusWriter writes statuses. Mutating admission gets the body as sent, and a foreign
// webhook may need the whole object: after a denied write, statusWriter sends the whole
// object. It is safe for concurrent use.
type statusWriter struct {
	mu    sync.Mutex
	whole map[types.UID]struct{}
}

// maxWhole bounds the recorded objects.
const maxWhole = 10_000

func (s *statusWriter) isWhole(o client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, whole := s.whole[o.GetUID()]
	return whole
}

func (s *statusWriter) setWhole(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole == nil || len(s.whole) >= maxWhole {
		s.whole = map[types.UID]struct{}{}
	}
	s.whole[o.GetUID()] = struct{}{}
}

// writeStatus writes an object's status.
func (s *statusWriter) writeStatus(ctx context.Context, to client.Client, o client.Object) error {
	if s.isWhole(o) {
		return to.Status().Update(ctx, o)
	}
	body, err := statusBodyOf(o, to.Scheme())
	if err != nil {
		return err
	}
	err = to.Status().Update(ctx, o, client.WithSubResourceBody(body))
	if (IsRefused(err) || apierrors.IsInternalError(err)) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
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

// UnmarshalJSON reads only the new version from the response: maps and lists of the
// metadata are shared with the object.
func (b *statusBody) UnmarshalJSON(response []byte) error {
	var stored struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err := json.Unmarshal(response, &stored)
	b.ResourceVersion = stored.Metadata.ResourceVersion
	return err
}

// DeepCopyObject implements runtime.Object.
func (b *statusBody) DeepCopyObject() runtime.Object {
	c := *b
	return &c
}
