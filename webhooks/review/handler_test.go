package review

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// allowing is a webhook that allows everything, with room for one call.
func allowing() *Handler {
	allow := func(context.Context, *admission.Request) (admission.Response, error) {
		return admission.Allowed(""), nil
	}
	return newTestHandler(newLimiter(1, maxLargeBodies), allow)
}

func TestSlowCalls_OccupyNoSlot(t *testing.T) {
	e := allowing()
	server := httptest.NewServer(e)
	defer server.Close()
	slow, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := fmt.Fprint(slow, "POST /?timeout=30s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(slow).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") { // its body is being read
		t.Fatalf("%q, %v", line, err)
	}
	if w := post(e, "/mutate", reviewOf("CREATE", "{}", "null")); w.Code != http.StatusOK {
		t.Errorf("another call: %d %s", w.Code, w.Body)
	}
}

// unread is an answer that its caller does not read.
type unread struct {
	*httptest.ResponseRecorder
	begun, ended chan struct{}
}

func (w unread) Write(text []byte) (int, error) {
	close(w.begun)
	<-w.ended
	return len(text), nil
}

func TestUnreadAnswers_OccupyNoSlot(t *testing.T) {
	e := allowing()
	w := unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	defer close(w.ended)
	call := reviewOf("CREATE", "{}", "null")
	go e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mutate", strings.NewReader(call)))
	<-w.begun
	if w := post(e, "/mutate", call); w.Code != http.StatusOK {
		t.Errorf("another call: %d %s", w.Code, w.Body)
	}
}

func TestLimiter_DelaysCallsAboveTheBound(t *testing.T) {
	large := reviewOf("CREATE", `{"x":"`+strings.Repeat("x", ordinaryBody)+`"}`, "null")
	for name, tc := range map[string]struct {
		at   *limiter // with room for one call, or one large body
		body string
		says string
		once string // may come meanwhile
	}{
		"calls":        {newLimiter(1, maxLargeBodies), reviewOf("CREATE", "{}", "null"), "1 calls are at work here: try again", ""},
		"large bodies": {newLimiter(3, int64(len(large)+10)), large, "calls with large objects use all memory", reviewOf("CREATE", "{}", "null")},
	} {
		t.Run(name, func(t *testing.T) {
			first, ended := make(chan struct{}), make(chan struct{})
			hold := func(_ context.Context, req *admission.Request) (admission.Response, error) {
				if req.Name == "first" {
					close(first)
					<-ended
				}
				return admission.Allowed(""), nil
			}
			e := newTestHandler(tc.at, hold)
			answered := make(chan int)
			go func() {
				answered <- post(e, "/mutate", strings.Replace(tc.body, `"name":"a"`, `"name":"first"`, 1)).Code
			}()
			<-first
			w := post(e, "/mutate", tc.body)
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("got %d, Retry-After %q: %s", w.Code, w.Header().Get("Retry-After"), w.Body)
			}
			if tc.once != "" {
				if w := post(e, "/mutate", tc.once); w.Code != http.StatusOK {
					t.Errorf("an ordinary one: %d %s", w.Code, w.Body)
				}
			}
			close(ended)
			if code := <-answered; code != http.StatusOK {
				t.Errorf("the first: %d", code)
			}
			if w := post(e, "/mutate", tc.body); w.Code != http.StatusOK {
				t.Errorf("after its end: %d %s", w.Code, w.Body)
			}
		})
	}
}

// A follower does not forward a call again to a leader that has no room for it.
func TestForward_LeaderOverloaded(t *testing.T) {
	for name, tc := range map[string]struct {
		calls int
		want  error
	}{
		"no room": {0, errLeaderOverloaded},
		"stops":   {1, errNotLeader},
	} {
		t.Run(name, func(t *testing.T) {
			called := newTestHandler(newLimiter(tc.calls, maxLargeBodies), func(context.Context, *admission.Request) (admission.Response, error) {
				return admission.Response{}, &ledger.NotServingError{Reason: "this replica does not lead"}
			})
			server := httptest.NewTLSServer(called)
			defer server.Close()
			called.Ledger = ledger.New(ledger.Config{Identity: "leader"})
			follower := newTestHandler(newLimiter(1, maxLargeBodies), nil)
			follower.Ledger, follower.Peers, follower.Identity = ledger.New(ledger.Config{Identity: "follower"}), server.Client(), "follower"
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			leader := journal.NewIdentity("leader", server.Listener.Addr().String())
			_, err := follower.callLeader(ctx, leader, time.Now(), make(chan struct{}), "/mutate", []byte(reviewOf("CREATE", "{}", "null")))
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// A body of three megabytes can hold a million values, each of which becomes a struct.
func TestLimiter_DelaysLargeObjectsAboveTheBound(t *testing.T) {
	allow := func(context.Context, *admission.Request) (admission.Response, error) {
		return admission.Allowed(""), nil
	}
	limits := newLimiter(maxCalls, maxLargeBodies)
	e := newTestHandler(limits, allow)
	many := reviewOf("CREATE", `{"metadata":{"finalizers":[`+strings.Repeat(`"",`, 900_000)+`""]}}`, "null")
	leave, err := limits.admitDecoding(bytes.Repeat([]byte(","), maxBody)) // more than there is
	if err != nil {
		t.Fatal(err)
	}
	if w := post(e, "/mutate", many); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "many values") {
		t.Errorf("got %d, Retry-After %q: %s", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
	if w := post(e, "/mutate", reviewOf("CREATE", "{}", "null")); w.Code != http.StatusOK {
		t.Errorf("an ordinary one: %d %s", w.Code, w.Body)
	}
	leave()
	if w := post(e, "/mutate", many); w.Code != http.StatusOK {
		t.Errorf("alone: %d %s", w.Code, w.Body)
	}
}

// reviewOf is an AdmissionReview of an IPAllocation.
func reviewOf(operation, object, oldObject string) string {
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":%q,"namespace":"team-a","name":"a",
		"kind":{"group":"butler.butlerlabs.dev","version":"v1alpha1","kind":"IPAllocation"},"object":%s,"oldObject":%s}}`, operation, object, oldObject)
}

func post(hook http.Handler, target, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	hook.ServeHTTP(w, req)
	return w
}

// claims is the subject of the webhooks of these tests.
var claims = Subject{
	Kind:      v1alpha1.GroupVersion.WithKind("IPAllocation"),
	ExactPath: func(allocator.Range) *field.Path { return field.NewPath("spec", "pinnedRange") },
	CountPath: field.NewPath("spec", "count"),
}

func newTestHandler(l *limiter, answer HookFunc) *Handler {
	t := NewTransport(Config{Log: logr.Discard()})
	t.limiter = l
	return t.NewHandler(Hook{Subject: claims, Func: answer}, OnlyEntry)
}
