package server

import (
	"context"
	"io"
	"time"
)

const (
	// drainTime is how long an ended idle connection stays open for its client to read
	// drainResponse. At most maxDraining connections stay open so; further connections
	// are closed at once.
	drainTime   = time.Second
	maxDraining = 256
)

// drainResponse is sent over an idle connection before the connection is closed. A client
// that has just sent a call reads drainResponse as the answer and repeats the call over
// another connection. Otherwise the API server closes the connection and logs an
// unsolicited response. If a connection is closed without a response, the API server
// cannot know whether its last call was executed, and fails the call.
const drainResponse = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// Drain sends drainResponse over every connection as soon as the connection is idle, and
// returns when clients have closed all connections or ctx ends. A connection whose call
// was answered a moment ago is not idle yet, and its client may already send the next
// call.
func (s *Connections) Drain(ctx context.Context) {
	for s.drainIdle(ctx) > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// drainIdle sends drainResponse over the connections that are idle now, and returns the
// number of open connections.
func (s *Connections) drainIdle(ctx context.Context) (open int) {
	deadline, _ := ctx.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		if c.phase == idle {
			s.leavePhase(c, ended)
			go c.sendDrainResponse(deadline)
		}
	}
	return len(s.open)
}

func (c *Connection) sendDrainResponse(deadline time.Time) {
	_ = c.SetWriteDeadline(deadline)
	_, _ = io.WriteString(c.Conn, drainResponse) // an error means that the client has closed the connection
}
