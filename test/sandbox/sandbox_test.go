package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestSandbox_RunsAControlPlane(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	s := start(t, Options{Dir: dir})

	t.Run("client and server have the version of the pinned Kubernetes", func(t *testing.T) {
		stdout, _, err := s.Kubectl(ctx, "", "version", "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		var versions struct {
			ClientVersion, ServerVersion struct{ Major, Minor, GitVersion string }
		}
		if err := json.Unmarshal([]byte(stdout), &versions); err != nil {
			t.Fatal(err)
		}
		if versions.ClientVersion != versions.ServerVersion {
			t.Errorf("kubectl is %v and kube-apiserver %v, want the same", versions.ClientVersion, versions.ServerVersion)
		}
		if got := versions.ServerVersion; got.Major != "1" || !strings.HasPrefix(got.GitVersion, "v1."+got.Minor+".") {
			t.Errorf("kube-apiserver says %v, want a stamped version", got)
		}
	})

	t.Run("a script finds kubeconfig, pids, logs and ready", func(t *testing.T) {
		for _, name := range []string{"kubeconfig", "ready", "pids/etcd", "pids/kube-apiserver", "logs/etcd.log", "logs/kube-apiserver.log"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
		pid, err := os.ReadFile(filepath.Join(dir, "pids", "etcd"))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%d\n", s.Etcd().Pid()); string(pid) != want {
			t.Errorf("pids/etcd holds %q, want %q", pid, want)
		}
	})

	t.Run("both namespaces exist", func(t *testing.T) {
		if _, _, err := s.Kubectl(ctx, "", "get", "namespace", Namespace, ManagerNamespace); err != nil {
			t.Error(err)
		}
	})

	t.Run("RBAC holds for a user without roles", func(t *testing.T) {
		config, err := s.ConfigFor("nobody")
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(config, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Get(ctx, client.ObjectKey{Name: Namespace}, newObject("v1", "Namespace", ""))
		if !apierrors.IsForbidden(err) {
			t.Errorf("reading a namespace gave %v, want a refusal by RBAC", err)
		}
	})

	t.Run("a second sandbox in the same directory is refused and harms nothing", func(t *testing.T) {
		if _, err := Start(ctx, Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by the sandbox with pid") {
			t.Errorf("got error %v, want one that says who uses the directory", err)
		}
		if _, _, err := s.Kubectl(ctx, "", "get", "namespace", Namespace); err != nil {
			t.Error(err)
		}
	})

	t.Run("webhooks are called from the moment they are installed", func(t *testing.T) {
		called := serveRefusals(t, s)
		for round := range 5 {
			name := fmt.Sprintf("refuse-%d", round)
			if err := s.install(ctx, []*unstructured.Unstructured{refusing(name, mutating), refusing(name, validating)}); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{mutating, validating} {
				object := newObject("v1", "ConfigMap", "one")
				object.SetNamespace(Namespace)
				object.SetLabels(map[string]string{"refuse": name + kind})
				if err := s.client.Create(ctx, object); !apierrors.IsForbidden(err) {
					t.Errorf("create gave %v, want the refusal of the %s", err, kind)
				}
			}
		}
		if got := <-called; got.ProtoMajor != 1 || got.URL.Path != "/refuse" {
			t.Errorf("the webhook was called as %s %s, want /refuse over HTTP/1", got.Proto, got.URL.Path)
		}
	})

	t.Run("a killed API server serves again at its address", func(t *testing.T) {
		p := s.APIServer()
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(ctx); err == nil {
			t.Error("a killed process ended without an error")
		}
		if p.Serving() {
			t.Error("a dead process is said to serve")
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := p.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Kubectl(ctx, "", "get", "namespace", Namespace); err != nil {
			t.Error(err)
		}
	})

	t.Run("stop leaves no process, also of a frozen one, and no pid", func(t *testing.T) {
		pids := []int{s.Etcd().Pid(), s.APIServer().Pid()}
		if err := s.Etcd().Freeze(); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("process %d after Stop: %v, want it gone", pid, err)
			}
		}
		for _, name := range []string{"ready", "pids"} {
			if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s after Stop: %v, want it gone", name, err)
			}
		}
	})
}

func TestSandbox_KeepsObjectsOnRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stored := func(options Options, write bool) error {
		options.Dir = dir
		s := start(t, options)
		defer stop(t, s)
		object := newObject("v1", "ConfigMap", "kept")
		object.SetNamespace(Namespace)
		if write {
			return s.client.Create(t.Context(), object)
		}
		return s.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	}
	if err := stored(Options{}, true); err != nil {
		t.Fatal(err)
	}
	if err := stored(Options{Keep: true}, false); err != nil {
		t.Errorf("with Keep: %v, want the object", err)
	}
	if err := stored(Options{}, false); !apierrors.IsNotFound(err) {
		t.Errorf("without Keep: %v, want not found", err)
	}
}

func TestSandbox_FailedStartShowsTheLog(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got error %v, want the line of the API server", err)
	}
}

func TestSandbox_WithoutBinaries(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Assets: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "make controlplane") {
		t.Errorf("got error %v, want one that names make controlplane", err)
	}
}

func TestSandbox_CancelledStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := Start(ctx, Options{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want that of the context", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pids")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pids: %v, want none", err)
	}
}

func start(t *testing.T, options Options) *Sandbox {
	t.Helper()
	s, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Sandbox) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// serveRefusals adds a webhook server behind the front that refuses everything, and
// returns its calls, the first ones at least.
func serveRefusals(t *testing.T, s *Sandbox) <-chan *http.Request {
	t.Helper()
	called := make(chan *http.Request, 1)
	server := &http.Server{
		// As the managers do: with HTTP/2 the API server would stay on one connection and
		// so on one endpoint.
		Protocols: new(http.Protocols),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case called <- r:
			default:
			}
			var review struct {
				Request struct{ UID string }
			}
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": false, "status": {"code": 403}}}`, review.Request.UID)
		}),
	}
	server.Protocols.SetHTTP1(true)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- server.ServeTLS(listener, filepath.Join(s.WebhookCertDir(), "tls.crt"), filepath.Join(s.WebhookCertDir(), "tls.key"))
	}()
	s.Front().Add("refusals", listener.Addr().String(), func() bool { return true })
	t.Cleanup(func() {
		s.Front().Remove("refusals")
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return called
}

// refusing is a webhook configuration as config/webhook has it, for ConfigMaps labelled
// refuse: name+kind.
func refusing(name, kind string) *unstructured.Unstructured {
	configuration := newObject(admissionVersion, kind, name)
	configuration.Object["webhooks"] = []any{map[string]any{
		"name":                    "refuse.butlerlabs.dev",
		"admissionReviewVersions": []any{"v1"},
		"sideEffects":             "None",
		"clientConfig": map[string]any{
			"service": map[string]any{"name": webhookService, "namespace": ManagerNamespace, "path": "/refuse"},
		},
		"objectSelector": map[string]any{"matchLabels": map[string]any{"refuse": name + kind}},
		"rules": []any{map[string]any{
			"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"}, "operations": []any{"CREATE"},
		}},
	}}
	return configuration
}
