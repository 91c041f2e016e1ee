package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"butlerlabs.dev/ipam/allocator/journal"
)

// idleCommand, as the first argument of this program, makes it the process of the idle
// webhooks: as the manager is one.
const idleCommand = "idle-webhooks"

// idleServer is that process. A line that it is sent it answers with the number of its
// calls so far.
type idleServer struct {
	address string // host:port
	command *exec.Cmd
	ask     io.WriteCloser
	answers *bufio.Reader
}

func startIdleServer(certDir, kubeconfig string) (*idleServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &idleServer{command: exec.Command(self, idleCommand, certDir, kubeconfig)}
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
func serveIdle(certDir, kubeconfig string) error {
	signal.Ignore(syscall.SIGINT) // it ends with its parent, which gets the same one
	certificate, err := tls.LoadX509KeyPair(filepath.Join(certDir, "tls.crt"), filepath.Join(certDir, "tls.key"))
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return err
	}
	commits, err := startCommits(kubeconfig)
	if err != nil {
		return err
	}
	var calls atomic.Int64
	mux := http.NewServeMux()
	mux.Handle(hookedCR.idle, pass(&calls, "", nothing))
	mux.Handle(committedCR.idle, pass(&calls, given, commits.wait))
	mux.Handle("/validate", pass(&calls, "", nothing))
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

// pass answers an AdmissionReview with "allowed" and a JSON patch, "" for none, when it
// is ready to.
func pass(calls *atomic.Int64, patch string, ready func(context.Context) error) http.Handler {
	if patch != "" {
		patch = fmt.Sprintf(`,"patchType":"JSONPatch","patch":%q`, base64.StdEncoding.EncodeToString([]byte(patch)))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var review struct{ Request struct{ UID types.UID } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true%s}}`, review.Request.UID, patch)
	})
}

func nothing(context.Context) error { return nil }

// given is the answer of an allocator that has one address. As the real one's, it leaves
// out who wrote which field.
const given = `[{"op":"add","path":"/spec/pinnedRange","value":{"startAddress":"10.0.0.1","endAddress":"10.0.0.1"}},` +
	`{"op":"add","path":"/metadata/annotations","value":{"butler.butlerlabs.dev/grant":"5f0c9a3e7b1d"}},` +
	`{"op":"remove","path":"/metadata/managedFields"}]`

// commits are writes of a Lease, one at a time, each for all that wait for one.
type commits chan chan error

func startCommits(kubeconfig string) (commits, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.NextProtos = []string{"http/1.1"} // as a manager does
	store, err := journal.NewLeaseStore(config, metav1.NamespaceDefault, time.Minute)
	if err != nil {
		return nil, err
	}
	c := make(commits, maxClients)
	go c.write(store)
	return c, nil
}

func (c commits) write(store journal.Store) {
	var last journal.Revision
	for first := range c {
		waiting := []chan error{first}
		for range len(c) {
			waiting = append(waiting, <-c)
		}
		next := last.Next(journal.Snapshot{})
		version, err := store.Write(context.Background(), next)
		if err == nil {
			last = next
			last.ResourceVersion = version
		}
		for _, done := range waiting {
			done <- err
		}
	}
}

// wait returns when a write has ended that began after the call.
func (c commits) wait(ctx context.Context) error {
	done := make(chan error, 1)
	c <- done
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
