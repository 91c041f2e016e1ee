package clients

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"butlerlabs.dev/ipam/test/suite"
)

const (
	example  = "../../config/samples/terraform/main.tf"
	binaries = "../../bin"

	provider       = "terraform-provider-kubectl"
	providerModule = "github.com/gavinbunney/terraform-provider-kubectl"
)

// mirror lets OpenTofu find the provider. The tests of other clients do not need either
// program.
var mirror = sync.OnceValue(func() error { return writeMirror(shared) })

// writeMirror lays the provider where OpenTofu looks for it, and writes the configuration
// that has OpenTofu look nowhere else.
func writeMirror(dir string) error {
	binary, err := filepath.Abs(filepath.Join(binaries, provider))
	if err != nil {
		return err
	}
	version, err := moduleVersion(binary, providerModule)
	if err != nil {
		return fmt.Errorf("%w: build it with make bin/%s", err, provider)
	}
	mirror := filepath.Join(dir, "providers")
	target := filepath.Join(mirror, "registry.opentofu.org/gavinbunney/kubectl", strings.TrimPrefix(version, "v"), runtime.GOOS+"_"+runtime.GOARCH)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	config := fmt.Sprintf("disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	return errors.Join(
		os.Symlink(binary, filepath.Join(target, provider+"_"+version)),
		os.WriteFile(filepath.Join(dir, "tofu.rc"), []byte(config), 0o644),
	)
}

// moduleVersion is the version of the module that a binary was built from.
func moduleVersion(binary, module string) (string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", err
	}
	if info.Main.Path != module {
		return "", fmt.Errorf("%s is built from %s, not from %s", binary, info.Main.Path, module)
	}
	return info.Main.Version, nil
}

// tofu is a directory with the example, or an edited one, and its state.
type tofu struct {
	t         *testing.T
	dir       string
	namespace string
	variables map[string]any
}

// newTofu initializes the example in a namespace and a routing domain of its own, with
// pairs of old and new texts exchanged.
func newTofu(t *testing.T, edits ...string) *tofu {
	t.Helper()
	if err := mirror(); err != nil {
		t.Fatal(err)
	}
	namespace := suite.CreateNamespace(t, stored)
	w := &tofu{t: t, dir: t.TempDir(), namespace: namespace, variables: map[string]any{"namespace": namespace, "routing_domain": namespace}}
	w.write(edits...)
	w.must("init", "-input=false")
	return w
}

// write writes the example with pairs of old and new texts exchanged; each old text must
// be there.
func (w *tofu) write(edits ...string) {
	w.t.Helper()
	text, err := os.ReadFile(example)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(edits); i += 2 {
		if !bytes.Contains(text, []byte(edits[i])) {
			w.t.Fatalf("the example lacks %q", edits[i])
		}
		text = bytes.ReplaceAll(text, []byte(edits[i]), []byte(edits[i+1]))
	}
	if err := os.WriteFile(filepath.Join(w.dir, "main.tf"), text, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// run runs tofu and returns what it printed and its exit code.
func (w *tofu) run(args ...string) (output string, code int) {
	w.t.Helper()
	binary, err := filepath.Abs(filepath.Join(binaries, "tofu"))
	if err != nil {
		w.t.Fatal(err)
	}
	variables, err := json.Marshal(w.variables)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "test.auto.tfvars.json"), variables, 0o644); err != nil {
		w.t.Fatal(err)
	}
	command := exec.CommandContext(w.t.Context(), binary, append(args, "-no-color")...)
	command.Dir = w.dir
	command.Env = append(os.Environ(), "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+filepath.Join(shared, "tofu.rc"), "KUBECONFIG="+cluster.Kubeconfig(),
		"HOME="+w.dir) // the provider caches discovery there
	text, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return string(text), command.ProcessState.ExitCode()
}

func (w *tofu) must(args ...string) string {
	w.t.Helper()
	output, code := w.run(args...)
	if code != 0 {
		w.t.Fatalf("tofu %s: exit code %d\n%s", strings.Join(args, " "), code, output)
	}
	return output
}

// counts are numbers of resources.
type counts struct{ added, changed, destroyed int }

var summary = regexp.MustCompile(`Resources: (\d+) added, (\d+) changed, (\d+) destroyed`)

// apply applies, which must succeed with these counts.
func (w *tofu) apply(want counts, args ...string) {
	w.t.Helper()
	output := w.must(append([]string{"apply", "-input=false", "-auto-approve"}, args...)...)
	m := summary.FindStringSubmatch(output)
	if m == nil {
		w.t.Fatalf("no summary in\n%s", output)
	}
	var got counts
	for i, n := range []*int{&got.added, &got.changed, &got.destroyed} {
		*n, _ = strconv.Atoi(m[i+1])
	}
	if got != want {
		w.t.Fatalf("applied %+v, want %+v\n%s", got, want, output)
	}
}

// denied applies, which must fail and say every part. Line breaks and box characters of
// the output count as one blank.
func (w *tofu) denied(parts ...string) {
	w.t.Helper()
	output, code := w.run("apply", "-input=false", "-auto-approve")
	if code == 0 {
		w.t.Fatalf("applied\n%s", output)
	}
	text := strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(output)), " ")
	for _, part := range parts {
		if !strings.Contains(text, part) {
			w.t.Errorf("the output does not say %q:\n%s", part, output)
		}
	}
}

// planned fails the test unless a plan has changes, or has none.
func (w *tofu) planned(changes bool) {
	w.t.Helper()
	output, code := w.run("plan", "-input=false", "-detailed-exitcode")
	if want := map[bool]int{false: 0, true: 2}[changes]; code != want {
		w.t.Fatalf("plan ends with exit code %d, want %d\n%s", code, want, output)
	}
}
