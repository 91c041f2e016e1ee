package webhooks

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// allowing is a webhook that allows everything, with room for one call.
func allowing() *edge {
	allow := func(context.Context, *admission.Request) (admission.Response, error) {
		return admission.Allowed(""), nil
	}
	return &edge{
		hook: hook{answer: allow, subject: ipAllocations{}.subject()}, places: newPlaces(1, maxLarge),
		repeats: &repeats{until: map[types.UID]time.Time{}}, metrics: NewMetrics(nil),
	}
}

func TestSlowCalls_TakeNoPlace(t *testing.T) {
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
	if w := post(e, MutateIPAllocation, review("CREATE", "{}", "null")); w.Code != http.StatusOK {
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

func TestUnreadAnswers_TakeNoPlace(t *testing.T) {
	e := allowing()
	w := unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	defer close(w.ended)
	call := review("CREATE", "{}", "null")
	go e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, MutateIPAllocation, strings.NewReader(call)))
	<-w.begun
	if w := post(e, MutateIPAllocation, call); w.Code != http.StatusOK {
		t.Errorf("another call: %d %s", w.Code, w.Body)
	}
}
