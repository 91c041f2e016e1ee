package ledger

import (
	"io"
	"net"
	"sync"
	"time"
)

// wire is the network between the API server and etcd. It can hold data that the API
// server sends over existing connections, and deliver the data later, also after the API
// server has ended.
type wire struct {
	net.Listener
	etcd string

	mu    sync.Mutex
	lines []*line
}

// line is one connection.
type line struct {
	client, server net.Conn

	mu    sync.Mutex
	owned bool
	kept  []byte
	last  time.Time // that something was
}

// behind connects the wire to etcd and returns the address for the API server.
func (w *wire) behind(etcd string) (address string, err error) {
	w.etcd = etcd
	if w.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return "", err
	}
	go w.accept()
	return w.Addr().String(), nil
}

func (w *wire) accept() {
	for {
		client, err := w.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", w.etcd)
		if err != nil {
			client.Close()
			continue
		}
		l := &line{client: client, server: server}
		w.mu.Lock()
		w.lines = append(w.lines, l)
		w.mu.Unlock()
		go l.forth()
		go l.back()
	}
}

// forth passes on what the API server sends. The end of a connection is not passed on
// while something of it is kept.
func (l *line) forth() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buffer)
		l.mu.Lock()
		switch {
		case l.owned:
			l.kept, l.last = append(l.kept, buffer[:n]...), time.Now()
		case n > 0:
			_, _ = l.server.Write(buffer[:n]) // etcd's end of the connection says itself when it is gone
		}
		owned := l.owned
		l.mu.Unlock()
		if err != nil {
			if !owned {
				l.server.Close()
			}
			return
		}
	}
}

func (l *line) back() {
	if _, err := io.Copy(l.client, l.server); err == nil {
		l.client.Close()
	}
	_, _ = io.Copy(io.Discard, l.server)
}

// hold holds data that is sent from now on over existing connections.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lines {
		l.mu.Lock()
		l.owned = true
		l.mu.Unlock()
	}
}

// kept returns the number of owned bytes, and the time since the last of them arrived.
func (w *wire) kept() (n int, quiet time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var last time.Time
	for _, l := range w.lines {
		l.mu.Lock()
		n += len(l.kept)
		if l.last.After(last) {
			last = l.last
		}
		l.mu.Unlock()
	}
	return n, time.Since(last)
}

// deliver sends the owned data to etcd.
func (w *wire) deliver() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lines {
		l.mu.Lock()
		kept := l.kept
		l.owned, l.kept = false, nil
		l.mu.Unlock()
		if len(kept) == 0 {
			continue
		}
		if _, err := l.server.Write(kept); err != nil {
			return err
		}
	}
	return nil
}
