package sandbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The test binary is also the processes that these tests need: a manager, which only says
// its name, when it is started with the flags of one; and a sandbox when this variable
// names its directory.
const sandboxDirectory = "SANDBOX_TEST_DIRECTORY"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "--kubeconfig="):
		exitWith(runManager())
	case os.Getenv(sandboxDirectory) != "":
		exitWith(runSandbox())
	}
	os.Exit(m.Run())
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runManager serves readiness and, at any webhook path, its identity, or with
// ?peer=host:port what it hears from there, until it is told to end.
func runManager() error {
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	values := map[string]*string{}
	for _, name := range []string{"kubeconfig", "namespace", "identity", "webhook-bind-address", "advertise-address", "webhook-cert-dir",
		"health-probe-bind-address", "metrics-bind-address", "pprof-bind-address", "metrics-secure"} {
		values[name] = flags.String(name, "", "")
	}
	unready := flags.Bool("unready", false, "")
	curious := flags.Bool("curious", false, "")
	slow := flags.Bool("slow-to-end", false, "")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if *curious {
		fmt.Fprintln(os.Stderr, readSecrets(*values["kubeconfig"]))
	}
	webhooks, err := net.Listen("tcp", *values["webhook-bind-address"]) // before it is Ready
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() {
		failed <- http.ListenAndServe(*values["health-probe-bind-address"], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if *unready {
				http.Error(w, "not ready", http.StatusServiceUnavailable)
			}
		}))
	}()
	go func() {
		dir := *values["webhook-cert-dir"]
		failed <- http.ServeTLS(webhooks, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := *values["identity"]
			if peer := r.URL.Query().Get("peer"); peer != "" {
				var err error
				if answer, err = get(r.Context(), dir, "https://"+peer); err != nil {
					answer = err.Error()
				}
			}
			fmt.Fprint(w, answer)
		}), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	}()
	fmt.Println(*values["identity"], "started")
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	select {
	case err := <-failed:
		return err
	case <-terminated:
		if *slow {
			time.Sleep(3 * time.Second)
		}
		return nil
	}
}

// readSecrets is what no manager may.
func readSecrets(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	api, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	return api.List(context.Background(), &corev1.SecretList{})
}

// runSandbox starts a sandbox and never stops it.
func runSandbox() error {
	if _, err := Start(context.Background(), Options{Dir: os.Getenv(sandboxDirectory)}); err != nil {
		return err
	}
	select {}
}

func TestManager_DiesAndServesAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := start(t, Options{Replicas: 2, ManagerBinary: testBinary(t)})
	first, second := s.Managers()[0], s.Managers()[1]

	wantNames(t, s, "manager-1", "manager-2")

	stdout, _, err := s.Kubectl(ctx, "", "--kubeconfig="+s.file("managers/manager-1.kubeconfig"), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	if err != nil {
		t.Fatal(err)
	}
	if want := "system:serviceaccount:butler-ipam-system:butler-ipam"; stdout != want {
		t.Errorf("a manager is %q to the API server, want %q", stdout, want)
	}

	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(ctx); err == nil {
		t.Error("a killed manager ended without an error")
	}
	wantNames(t, s, "manager-2")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err == nil {
		t.Error("a manager that runs could be started a second time")
	}
	if err := first.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	wantNames(t, s, "manager-1", "manager-2")

	if err := first.Freeze(); err != nil {
		t.Fatal(err)
	}
	awaitEndpoint(t, first, false)
	wantNames(t, s, "manager-2")
	if err := first.Thaw(); err != nil {
		t.Fatal(err)
	}
	awaitEndpoint(t, first, true)
	wantNames(t, s, "manager-1", "manager-2")

	if err := second.Terminate(); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(ctx); err != nil {
		t.Errorf("a manager that was asked to end: %v, want exit code 0", err)
	}
	if _, err := s.AddManager(ctx); err != nil {
		t.Fatal(err)
	}
	wantNames(t, s, "manager-1", "manager-3")
}

func TestManager_Restart(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Replicas: 1, ManagerBinary: testBinary(t), Restart: true})
	manager := s.Managers()[0]
	before := manager.Pid()
	if err := manager.Kill(); err != nil {
		t.Fatal(err)
	}
	err := poll(t.Context(), func(context.Context) error {
		if manager.Pid() == before || !manager.Serving() {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantNames(t, s, "manager-1")
	if pid, want := readPid(t, s.file("pids/manager-1")), manager.Pid(); pid != want {
		t.Errorf("pids/manager-1 holds %d, want that of the new process, %d", pid, want)
	}
}

func TestManager_LackingARightIsReported(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Replicas: 1, ManagerBinary: testBinary(t), ManagerArgs: []string{"--curious"}})
	if err := s.CheckLogs(); err == nil || !strings.Contains(err.Error(), `manager-1 lacks a right: secrets is forbidden`) {
		t.Errorf("got error %v, want one that names the Secrets", err)
	}
}

func TestSandbox_StoppingIsNotReady(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Replicas: 1, ManagerBinary: testBinary(t), ManagerArgs: []string{"--slow-to-end"}})
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	err := poll(t.Context(), func(context.Context) error {
		if _, err := os.Stat(s.file("ready")); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ready is there: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !s.managers[0].Serving() {
		t.Error("ready goes when nothing is left that serves, want it gone before")
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestManager_StartFailureSaysWhy(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})

	t.Run("not built", func(t *testing.T) {
		s.options.ManagerBinary = filepath.Join(t.TempDir(), "none")
		if _, err := s.AddManager(t.Context()); err == nil || !strings.Contains(err.Error(), "make build") {
			t.Errorf("got error %v, want one that names make build", err)
		}
	})

	t.Run("ended", func(t *testing.T) {
		s.options.ManagerBinary, s.options.ManagerArgs = testBinary(t), []string{"--no-such-flag"}
		_, err := s.AddManager(t.Context())
		if err == nil || !strings.Contains(err.Error(), "manager-1 ended before it served") || !strings.Contains(err.Error(), "no-such-flag") {
			t.Errorf("got error %v, want one with the log of manager-1", err)
		}
	})

	t.Run("never ready", func(t *testing.T) {
		s.options.ManagerBinary, s.options.ManagerArgs = testBinary(t), []string{"--unready"}
		manager, err := s.startManager()
		if err != nil {
			t.Fatal(err)
		}
		err = poll(t.Context(), func(context.Context) error {
			if !strings.Contains(manager.logTail(manager.current()), "manager-2 started") {
				return errors.New("not started")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("patience is over"))
		err = manager.Ready(ctx)
		if err == nil || !strings.Contains(err.Error(), "patience is over") || !strings.Contains(err.Error(), "manager-2 started") {
			t.Errorf("got error %v, want the reason and the log of manager-2", err)
		}
		if manager.Serving() {
			t.Error("a manager that is not ready is said to serve")
		}
	})
}

// awaitEndpoint waits until a manager is an endpoint of the front, or is none.
func awaitEndpoint(t *testing.T, m *Manager, want bool) {
	t.Helper()
	err := poll(t.Context(), func(context.Context) error {
		if m.isEndpoint() != want {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s is endpoint: %v, want %v", m.Name(), m.isEndpoint(), want)
	}
}

// wantNames checks which managers answer over new connections to the front.
func wantNames(t *testing.T, s *Sandbox, names ...string) {
	t.Helper()
	want, got := map[string]int{}, map[string]int{}
	for _, name := range names {
		want[name] = 3
	}
	for range 3 * len(names) {
		name, err := get(t.Context(), s.WebhookCertDir(), "https://"+s.front.Address())
		if err != nil {
			t.Fatal(err)
		}
		got[name]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("connections per manager (-want +got):\n%s", diff)
	}
}

// get reads what a webhook server says to a new connection.
func get(ctx context.Context, certDir, url string) (string, error) {
	authority, err := os.ReadFile(filepath.Join(certDir, "ca.crt"))
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: webhookService + "." + ManagerNamespace + ".svc"},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func readPid(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
