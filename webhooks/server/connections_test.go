package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// server answers calls whose body it has read, or has 503 where that was ended. It has
// room for some connections without a body.
func startServer(t *testing.T, room int64) (*httptest.Server, *Connections) {
	t.Helper()
	set := NewConnections(room * connectionSize)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := ConnectionOf(r)
		c.StartReading(r.ContentLength)
		_, err := io.Copy(io.Discard, r.Body)
		if !c.StartWorking() || err != nil {
			http.Error(w, "ended", http.StatusServiceUnavailable)
			return
		}
		c.StartWriting()
		_, _ = io.WriteString(w, "answer")
	}))
	s.Config.ConnContext, s.Config.ConnState = set.AddContext, set.ObserveState
	s.Start()
	t.Cleanup(s.Close)
	return s, set
}

// connect makes a connection and sends some text over it.
func connect(t *testing.T, s *httptest.Server, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	return c
}

// call is a whole call, whose answer is read.
func call(t *testing.T, s *httptest.Server) (c net.Conn, answer string) {
	t.Helper()
	c = connect(t, s, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return c, fmt.Sprint(response.StatusCode, " ", string(text))
}

func TestConnections_EndOldestOnesAboveTheBound(t *testing.T) {
	const room = 8
	for name, tc := range map[string]struct {
		sent string
		read string // by its client, until the end
	}{
		"without a request":       {"", drainResponse},
		"headers that do not end": {"POST / HTTP/1.1\r\nHost: x\r\n", drainResponse},
		"a body that does not end": {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
			"HTTP/1.1 503 Service Unavailable\r\n"},
		"a body that has large parts to come": {fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", 3*connectionSize),
			"HTTP/1.1 503 Service Unavailable\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := startServer(t, room)
			slow := connect(t, s, tc.sent)
			for range 4 * room {
				if _, answer := call(t, s); answer != "200 answer" {
					t.Fatalf("a quick call: %s", answer)
				}
			}
			text, err := io.ReadAll(slow)
			if reset := (*net.OpError)(nil); err != nil && !errors.As(err, &reset) || !strings.HasPrefix(string(text), tc.read) {
				t.Errorf("got %q, %v, want %q and the end", text, err, tc.read)
			}
		})
	}
}

func (s *Connections) allIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		if c.phase != idle {
			return false
		}
	}
	return true
}

func TestConnections_SendDrainResponseToIdleOnes(t *testing.T) {
	const room = 4
	s, set := startServer(t, room)
	kept, _ := call(t, s)
	for limit := time.Now().Add(10 * time.Second); !set.allIdle(); time.Sleep(time.Millisecond) { // the client has the answer a moment before
		if time.Now().After(limit) {
			t.Fatal("the connection of an answered call does not become idle")
		}
	}
	for range room {
		connect(t, s, "GET")
	}
	text, err := io.ReadAll(kept)
	if err != nil || string(text) != drainResponse {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestConnections_CountEachOpenOneOnce(t *testing.T) {
	set := NewConnections(10 * connectionSize)
	a, b := net.Pipe()
	defer b.Close()
	set.AddContext(t.Context(), a)
	for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateIdle, http.StateActive} {
		if set.ObserveState(a, state); set.used != connectionSize || set.waiting.Len() != 1 {
			t.Errorf("%s: %d bytes in %d connections", state, set.used, set.waiting.Len())
		}
	}
	c := set.open[a]
	if c.StartReading(1000); set.used != connectionSize+1000 {
		t.Errorf("reading: %d bytes", set.used)
	}
	if kept := c.StartWorking(); !kept || set.used != 0 {
		t.Errorf("working: %d bytes", set.used)
	}
	if c.StartWriting(); set.used != connectionSize {
		t.Errorf("writing: %d bytes", set.used)
	}
	set.ObserveState(a, http.StateClosed)
	if set.used != 0 || set.waiting.Len() != 0 || len(set.open) != 0 {
		t.Errorf("closed: %d bytes, %d waiting of %d", set.used, set.waiting.Len(), len(set.open))
	}
}
