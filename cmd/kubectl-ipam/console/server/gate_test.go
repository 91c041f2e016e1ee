package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// testGate is a gate whose API server accepts the tokens "valid…".
type testGate struct {
	*gate
	mu      sync.Mutex
	clock   time.Time
	reviews atomic.Int64
	hold    chan struct{} // blocks the reviews of unknown tokens until it is closed; nil to block none
	fails   atomic.Bool
}

func newTestGate() *testGate {
	g := &testGate{clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	tokens := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		g.reviews.Add(1)
		switch {
		case g.fails.Load():
			return nil, false, context.DeadlineExceeded
		case len(token) >= 5 && token[:5] == "valid":
			return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
		}
		if g.hold != nil {
			<-g.hold
		}
		return nil, false, errors.New("unknown token")
	})
	rights := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	pages := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	g.gate = &gate{handler: pages, tokens: tokens, rights: rights, requests: make(chan struct{}, maxRequests), log: logr.Discard(), sources: newSources(func() time.Time {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.clock
	})}
	return g
}

func (g *testGate) pass(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clock = g.clock.Add(d)
}

// get requests a page from a source, and returns the status.
func (g *testGate) get(source, token string) int {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = source
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Code
}

// Clients with random tokens cause few reviews, by source, and take no place of a person
// whose token was accepted, also behind the same proxy.
func TestGate_RandomTokens(t *testing.T) {
	g := newTestGate()
	const proxy, another = "192.0.2.1:4000", "192.0.2.2:4000"
	if code := g.get(proxy, "valid-alice"); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	before := g.reviews.Load()
	var clients sync.WaitGroup
	var denied, postponed, others atomic.Int64
	for client := range 80 {
		clients.Go(func() {
			for n := range 100 {
				switch g.get(proxy, fmt.Sprintf("random-%d-%d", client, n)) {
				case http.StatusUnauthorized:
					denied.Add(1)
				case http.StatusTooManyRequests:
					postponed.Add(1)
				default:
					others.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if n := g.reviews.Load() - before; n > sourceBurst || others.Load() > 0 || denied.Load() != n || postponed.Load() != 8000-n {
		t.Errorf("%d reviews, want at most %d: %d denied, %d postponed, %d others", n, sourceBurst, denied.Load(), postponed.Load(), others.Load())
	}
	if code := g.get(proxy, "valid-alice"); code != http.StatusOK {
		t.Errorf("an accepted token behind the same proxy: status %d", code)
	}
	if code := g.get(proxy, "valid-bob"); code != http.StatusTooManyRequests {
		t.Errorf("a new token behind the same proxy: status %d", code)
	}
	if code := g.get(another, "valid-bob"); code != http.StatusOK {
		t.Errorf("a new token of another source: status %d", code)
	}
	g.pass(sourceInterval)
	if code := g.get(proxy, "valid-carol"); code != http.StatusOK {
		t.Errorf("a new token after a second: status %d", code)
	}
	if code := g.get(proxy, ""); code != http.StatusUnauthorized {
		t.Errorf("no token: status %d", code)
	}
}

// Reviews of unknown tokens that take long leave room for persons whose token was
// accepted.
func TestGate_SlowReviews(t *testing.T) {
	g := newTestGate()
	g.get("192.0.2.1:4000", "valid-alice")
	g.hold = make(chan struct{})
	var clients sync.WaitGroup
	statuses := make(chan int, 2*maxRequests)
	for n := range 2 * maxRequests {
		clients.Go(func() { statuses <- g.get(fmt.Sprintf("198.51.100.%d:4000", n), fmt.Sprint("random-", n)) })
	}
	for range 2*maxRequests - maxReviews { // the others wait for their review
		if code := <-statuses; code != http.StatusTooManyRequests {
			t.Errorf("status %d", code)
		}
	}
	if code := g.get("192.0.2.1:4000", "valid-alice"); code != http.StatusOK {
		t.Errorf("an accepted token: status %d", code)
	}
	close(g.hold)
	clients.Wait()
}

// A denied token is denied for seconds without a review. A failed review denies nothing.
func TestGate_DeniedToken(t *testing.T) {
	g := newTestGate()
	const source = "[2001:db8:1:2::1]:4000"
	for range 5 {
		if code := g.get(source, "expired"); code != http.StatusUnauthorized {
			t.Errorf("status %d", code)
		}
	}
	if n := g.reviews.Load(); n != 1 {
		t.Errorf("%d reviews of a token that was denied", n)
	}
	g.pass(denialLife)
	g.get(source, "expired")
	if n := g.reviews.Load(); n != 2 {
		t.Errorf("%d reviews after %s", n, denialLife)
	}
	g.fails.Store(true)
	if code := g.get(source, "valid-alice"); code != http.StatusServiceUnavailable {
		t.Errorf("a failed review: status %d", code)
	}
	g.fails.Store(false)
	if code := g.get(source, "valid-alice"); code != http.StatusOK {
		t.Errorf("after a failed review: status %d", code)
	}
	for n := range 2 * sourceBurst { // all addresses of a /64 are one source
		g.get(fmt.Sprintf("[2001:db8:1:2::%x]:4000", n+2), fmt.Sprint("random-", n))
	}
	if n := g.reviews.Load(); n > 4+sourceBurst {
		t.Errorf("%d reviews for a network", n)
	}
}
