package butler

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"butlerlabs.dev/ipam/test/suite"
	"butlerlabs.dev/ipam/webhooks"
)

// Of each kind there are more connections than calls may be at work, and of all more than
// the manager keeps.
func TestSlowConnections_FailNoCreate(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.47.0.0/24"))
	const each = 1100
	post := "POST " + webhooks.MutateIPAllocation + "?timeout=30s HTTP/1.1\r\nHost: x\r\n"
	for name, sent := range map[string]string{
		"handshakes": "",
		"headers":    post,
		"bodies":     post + "Content-Length: 1000\r\n\r\n{",
		"elsewhere":  "POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
	} {
		connections := make([]net.Conn, each)
		for i, err := range byMany(32, each, func(i int) (err error) {
			connections[i], err = slowly(sent)
			return err
		}) {
			if err != nil {
				t.Fatalf("%s: connection %d: %v", name, i, err)
			}
		}
		defer func() {
			for _, c := range connections {
				_ = c.Close()
			}
		}()
		for i := range 10 {
			began := time.Now()
			suite.Create(t, admin, claim(ns, fmt.Sprint(name, "-", i), 1))
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: create %d took %s", name, i, took)
			}
		}
	}
}

// slowly opens a connection to the manager, and sends the beginning of a request; nothing
// of TLS where that is empty.
func slowly(sent string) (net.Conn, error) {
	address := cluster.Managers()[0].WebhookAddress
	if sent == "" {
		return net.Dial("tcp", address)
	}
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(c, sent)
	return c, err
}
