package informers

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

var absent = apierrors.NewNotFound(schema.GroupResource{Resource: "pools"}, "")

// server is an API server with one kind.
type server struct {
	mu      sync.Mutex
	refuses error // every list and watch
	version int
	objects []corev1.ConfigMap
	watches []*watch.RaceFreeFakeWatcher
}

// turn has the server refuse from now on, or no longer, with these objects; its watches
// end.
func (s *server) turn(refuses error, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses, s.objects = refuses, nil
	s.version++
	for _, name := range names {
		s.objects = append(s.objects, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(s.version)}})
	}
	for _, w := range s.watches {
		w.Error(&apierrors.NewResourceExpired("it is listed again").ErrStatus)
		w.Stop()
	}
	s.watches = nil
}

func (s *server) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses != nil {
		return nil, s.refuses
	}
	return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}, Items: s.objects}, nil
}

func (s *server) watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses != nil {
		return nil, s.refuses
	}
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("streams nothing")
	}
	w := watch.NewRaceFreeFake()
	s.watches = append(s.watches, w)
	return w, nil
}

func TestAKindThatIsMissingOrHiddenIsFollowedWhenItCanBe(t *testing.T) {
	for name, test := range map[string]struct {
		first, later error // refusals
		stays        bool  // what was listed, in the second one
	}{
		"served all the time":          {nil, nil, true},
		"CRD comes later":              {absent, nil, true},
		"CRD is deleted":               {nil, absent, false},
		"right comes later":            {forbidden, nil, true},
		"right is taken":               {nil, forbidden, true},
		"CRD is deleted without right": {forbidden, absent, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.turn(test.first, "a")
				informer := New(logr.Discard(), &corev1.ConfigMap{})(&toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch},
					&corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Optional)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go informer.RunWithContext(ctx)
				at := func(refuses error, objects int) {
					t.Helper()
					time.Sleep(2 * time.Minute)
					gone, denied := informer.ReadAccess()
					if gone != apierrors.IsNotFound(refuses) || (denied != nil) != apierrors.IsForbidden(refuses) {
						t.Errorf("refused with %v: absent %t, denied %v", refuses, gone, denied)
					}
					if got := len(informer.GetStore().List()); got != objects || !informer.HasSynced() {
						t.Errorf("refused with %v: %d objects, want %d; synced %t", refuses, got, objects, informer.HasSynced())
					}
				}
				count := map[bool]int{true: 1}
				at(test.first, count[test.first == nil])
				if test.later != nil || test.first != nil {
					s.turn(test.later, "a")
				}
				at(test.later, count[test.stays])
				s.turn(nil, "a", "b")
				at(nil, 2)
				s.turn(absent)
				at(absent, 0)
				s.turn(forbidden)
				at(forbidden, 0)
				s.turn(absent) // an API server that starts denies what it does not serve either
				at(absent, 0)
				s.turn(nil, "c")
				at(nil, 1)
				cancel()
				synctest.Wait()
			})
		})
	}
}

// An API server that has just started refuses for a moment what it serves.
func TestOneRefusalEmptiesNoStore(t *testing.T) {
	for _, refusal := range []error{absent, forbidden} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			s.turn(nil, "a")
			informer := New(logr.Discard(), &corev1.ConfigMap{})(&toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch},
				&corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Optional)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			removed := 0
			_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { removed++ }})
			if err != nil {
				t.Fatal(err)
			}
			go informer.RunWithContext(ctx)
			time.Sleep(time.Minute)
			s.turn(refusal)
			time.Sleep(refusedAgain / 2)
			s.turn(nil, "a")
			time.Sleep(2 * time.Minute)
			gone, denied := informer.ReadAccess()
			if gone || denied != nil || removed > 0 || len(informer.GetStore().List()) != 1 {
				t.Errorf("after %v: absent %t, denied %v, %d removed", refusal, gone, denied, removed)
			}
			cancel()
			synctest.Wait()
		})
	}
}
