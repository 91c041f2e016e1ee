package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// farewell is sent over connections that carry no call, before they are closed. A call that is on its way over one of them takes it for its
// answer, and is repeated over another connection; else the API server gives the connection up, and tells its log of an unsolicited
// response. Of a connection closed without a word the API server cannot know what became of the call on it, and fails that.
const farewell = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// keptConnections are those that are open and carry no call.
type keptConnections struct {
	mu    sync.Mutex
	leave map[net.Conn]bool // connection -> whether it has been told
}

// note takes in what becomes of a connection: it is the ConnState of an http.Server.
func (k *keptConnections) note(c net.Conn, state http.ConnState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if state == http.StateNew || state == http.StateIdle {
		k.leave[c] = false
	} else {
		delete(k.leave, c)
	}
}

// dismiss has all of them given up by those who keep them, and waits for that until ctx ends.
func (k *keptConnections) dismiss(ctx context.Context) {
	for k.tell(ctx) > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func (k *keptConnections) tell(ctx context.Context) (left int) {
	limit, _ := ctx.Deadline()
	k.mu.Lock()
	defer k.mu.Unlock()
	for c, told := range k.leave {
		if told {
			continue
		}
		k.leave[c] = true
		go func() {
			_ = c.SetWriteDeadline(limit)
			_, _ = io.WriteString(c, farewell) // who does not read it is gone
		}()
	}
	return len(k.leave)
}
