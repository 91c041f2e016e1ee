package sandbox

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFront_SpreadsConnections(t *testing.T) {
	front := newFront(t)
	for _, name := range []string{"a", "b", "c"} {
		front.Add(name, greeter(t, name), always)
	}
	got := map[string]int{}
	for range 30 {
		got[greeting(t, front)]++
	}
	if diff := cmp.Diff(map[string]int{"a": 10, "b": 10, "c": 10}, got); diff != "" {
		t.Errorf("connections per endpoint (-want +got):\n%s", diff)
	}
}

func TestFront_SkipsEndpointsThatDoNotServe(t *testing.T) {
	front := newFront(t)
	var serves atomic.Bool
	front.Add("a", greeter(t, "a"), always)
	front.Add("b", greeter(t, "b"), serves.Load)
	want := func(step string, names ...string) {
		t.Helper()
		got := map[string]bool{}
		for range 4 {
			got[greeting(t, front)] = true
		}
		wanted := map[string]bool{}
		for _, name := range names {
			wanted[name] = true
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("endpoints %s (-want +got):\n%s", step, diff)
		}
	}
	want("before b serves", "a")
	serves.Store(true)
	want("when both serve", "a", "b")
	front.Remove("a")
	want("without a", "b")
	front.Remove("b")
	want("without any", "")
}

func TestFront_RepeatsNothing(t *testing.T) {
	front := newFront(t)
	front.Add("refuses", refusingAddress(t), always)
	front.Add("serves", greeter(t, "serves"), always)
	got := map[string]int{}
	for range 10 {
		got[greeting(t, front)]++
	}
	if diff := cmp.Diff(map[string]int{"": 5, "serves": 5}, got); diff != "" {
		t.Errorf("while an endpoint refuses, connections per endpoint (-want +got):\n%s", diff)
	}
}

func TestFront_SkipsAnEndpointThatJustEnded(t *testing.T) {
	front := newFront(t)
	var asked atomic.Int32
	// Served when its turn came, and gone when the dial had failed.
	front.Add("gone", refusingAddress(t), func() bool { return asked.Add(1)%2 == 1 })
	front.Add("serves", greeter(t, "serves"), always)
	for range 4 {
		if got := greeting(t, front); got != "serves" {
			t.Errorf("connected to %q, want serves", got)
		}
	}
}

func TestFront_CarriesBytesBothWays(t *testing.T) {
	front := newFront(t)
	front.Add("counts", counter(t), always)
	sendToCounter(t, front.Address())
}

// counter says how many bytes the first connection has sent, when that has no more to
// say.
func counter(t *testing.T) (address string) {
	t.Helper()
	listener := listen(t)
	go func() {
		for counted := false; !counted; { // a connection without a word is a probe
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			sent, err := io.Copy(io.Discard, connection)
			if counted = sent > 0 && err == nil; counted {
				fmt.Fprintf(connection, "heard %d bytes", sent)
			}
			connection.Close()
		}
	}()
	return listener.Addr().String()
}

func sendToCounter(t *testing.T, address string) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(connection)
	if err != nil {
		t.Fatal(err)
	}
	if want := "heard 1048576 bytes"; string(reply) != want {
		t.Errorf("reply %q, want %q", reply, want)
	}
}

func always() bool { return true }

func newFront(t *testing.T) *Front {
	t.Helper()
	front, err := NewFront()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := front.Stop(); err != nil {
			t.Error(err)
		}
	})
	return front
}

// greeting returns what the endpoint says to a new connection; it is empty when the
// connection is broken.
func greeting(t *testing.T, front *Front) string {
	t.Helper()
	connection, err := net.Dial("tcp", front.Address())
	if err != nil {
		return "" // the reset may come this early
	}
	defer connection.Close()
	text, _ := io.ReadAll(connection)
	return string(text)
}

// greeter says its name to every connection and closes it.
func greeter(t *testing.T, name string) (address string) {
	t.Helper()
	listener := listen(t)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(connection, name)
			connection.Close()
		}
	}()
	return listener.Addr().String()
}

// refusingAddress is an address where nobody listens and nobody will.
func refusingAddress(t *testing.T) string {
	t.Helper()
	port, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := port.release(); err != nil {
			t.Error(err)
		}
	})
	return port.addr.String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}
