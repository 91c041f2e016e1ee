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

// phase is what becomes of a connection.
type phase int

const (
	busy phase = iota // it carries a call
	idle              // it carries none
	told              // and whoever keeps it has been told that there will be none
)

// keptConnections are all that are open.
type keptConnections struct {
	mu  sync.Mutex
	all map[net.Conn]phase
}

// note takes in what becomes of a connection: it is the ConnState of an http.Server.
func (k *keptConnections) note(c net.Conn, state http.ConnState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		k.all[c] = idle
	case http.StateActive:
		k.all[c] = busy
	default:
		delete(k.all, c)
	}
}

// dismiss has all of them given up by those who keep them, each once it carries no call, and waits for that until ctx ends. One whose call was
// answered this moment is still busy: who has the answer may send the next call over it.
func (k *keptConnections) dismiss(ctx context.Context) {
	for k.tell(ctx) > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func (k *keptConnections) tell(ctx context.Context) (left int) {
	limit, _ := ctx.Deadline()
	k.mu.Lock()
	defer k.mu.Unlock()
	for c, phase := range k.all {
		if phase != idle {
			continue
		}
		k.all[c] = told
		go func() {
			_ = c.SetWriteDeadline(limit)
			_, _ = io.WriteString(c, farewell) // who does not read it is gone
		}()
	}
	return len(k.all)
}
