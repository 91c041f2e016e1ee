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

// statusBody is what a write of an object's status is about: which version of which object, and the status. The API server reads and compares the
// rest of the body as well, to put what is stored in its place.
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
	b := &statusBody{
		ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()},
		Status:     reflect.ValueOf(o).Elem().FieldByName("Status").Interface(),
	}
	gvk, err := apiutil.GVKForObject(o, scheme)
	b.SetGroupVersionKind(gvk)
	return b, err
}

// UnmarshalJSON reads the answer, of which only the metadata is news.
func (b *statusBody) UnmarshalJSON(answer []byte) error {
	return json.Unmarshal(answer, &struct {
		*metav1.ObjectMeta `json:"metadata"`
	}{&b.ObjectMeta})
}

// DeepCopyObject implements runtime.Object.
func (b *statusBody) DeepCopyObject() runtime.Object {
	c := *b
	return &c
}
