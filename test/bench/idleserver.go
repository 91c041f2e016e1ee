package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// idleCommand, as the first argument of this program, makes it the process of the webhooks that do nothing: as the manager is one.
const idleCommand = "idle-webhooks"

// idleServer is that process. A line that it is sent it answers with the number of its calls so far.
type idleServer struct {
	address string // host:port
	command *exec.Cmd
	ask     io.WriteCloser
	answers *bufio.Reader
}

func startIdleServer(certDir string) (*idleServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &idleServer{command: exec.Command(self, idleCommand, certDir)}
	s.command.Stderr = os.Stderr
	if s.ask, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.answers = bufio.NewReader(stdout)
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	if s.address, err = s.answer(); err != nil {
		return nil, errors.Join(fmt.Errorf("the process of the idle webhooks says no address: %w", err), s.stop())
	}
	return s, nil
}

func (s *idleServer) answer() (string, error) {
	line, err := s.answers.ReadString('\n')
	return strings.TrimSpace(line), err
}

// calls is how often the webhooks were called so far, both together.
func (s *idleServer) calls() (int, error) {
	if _, err := fmt.Fprintln(s.ask); err != nil {
		return 0, err
	}
	text, err := s.answer()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (s *idleServer) stop() error {
	return errors.Join(s.ask.Close(), s.command.Wait())
}

// serveIdle is what the process does, until its standard input ends.
func serveIdle(certDir string) error {
	signal.Ignore(syscall.SIGINT) // it ends with its parent, which gets the same one
	certificate, err := tls.LoadX509KeyPair(filepath.Join(certDir, "tls.crt"), filepath.Join(certDir, "tls.key"))
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return err
	}
	var calls atomic.Int64
	mux := http.NewServeMux()
	mux.Handle("/mutate", pass(&calls))
	mux.Handle("/validate", pass(&calls))
	server := &http.Server{Handler: mux} //nolint:gosec // on loopback, for as long as its parent measures
	fmt.Println(listener.Addr())
	go func() {
		for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
			fmt.Println(calls.Load())
		}
		server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// pass answers an AdmissionReview with "allowed".
func pass(calls *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var review struct{ Request struct{ UID types.UID } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
	})
}
