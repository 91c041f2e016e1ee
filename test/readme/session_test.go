package readme

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"butlerlabs.dev/ipam/test/sandbox"
)

// session executes the blocks of one document.
type session struct {
	t        *testing.T
	document string
	dir      string // looks like a checkout
	box      *sandbox.Sandbox
	helm     *sandbox.Sandbox  // without managers, where charts are installed
	state    []string          // cd and export commands so far
	files    map[string]bool   // written, and not used by a command yet
	used     map[*outside]bool // of elsewhere
}

// newSession makes a directory that looks like a checkout: links to everything in the
// repository, and a bin of its own.
func newSession(t *testing.T, document string) *session {
	s := &session{t: t, document: document, dir: t.TempDir(), files: map[string]bool{}, used: map[*outside]bool{}}
	bin := filepath.Join(s.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{root: s.dir, filepath.Join(root, "bin"): bin} {
		entries, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() == "bin" || e.Name() == "sandbox" {
				continue
			}
			target, err := filepath.Abs(filepath.Join(from, e.Name()))
			if err == nil {
				err = os.Symlink(target, filepath.Join(to, e.Name()))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// execute runs a block. An error says what is not as the document shows it.
func (s *session) execute(b block) error {
	switch b.language {
	case "text":
		return nil
	case "yaml":
		name, err := b.file()
		if err != nil || s.isElsewhere(name) {
			return err
		}
		s.files[name] = true
		return os.WriteFile(filepath.Join(s.dir, name), []byte(strings.Join(b.lines, "\n")+"\n"), 0o600)
	case "sh", "console":
		commands, err := b.commands()
		if err != nil {
			return err
		}
		for _, c := range commands {
			if err := s.run(c); err != nil {
				return fmt.Errorf("line %d: %s\n%w", c.line, c.text, err)
			}
		}
		return nil
	}
	return fmt.Errorf("line %d: nothing executes blocks of %q", b.line, b.language)
}

var makeSandbox = regexp.MustCompile(`^((?:[A-Z_]+=\S+ )*)make sandbox((?: [A-Z]+=\S+)*)$`)

func (s *session) run(c command) error {
	for name := range s.files {
		if strings.Contains(c.text, name) || name == "kustomization.yaml" && strings.HasPrefix(c.text, "kubectl kustomize ") {
			delete(s.files, name)
		}
	}
	if s.isElsewhere(c.text) {
		return nil
	}
	if m := makeSandbox.FindStringSubmatch(c.text); m != nil {
		return s.startSandbox(strings.Fields(m[1]), strings.Fields(m[2]))
	}
	output, err := s.shell(c.text)
	switch {
	case err != nil && !c.fails():
		return fmt.Errorf("%w\n%s", err, output)
	case err == nil && c.fails():
		return fmt.Errorf("it succeeds:\n%s", output)
	case len(c.shown) > 0 && !matches(c.shown, output):
		return fmt.Errorf("it prints\n%s\nand the document shows\n%s", output, strings.Join(c.shown, "\n"))
	}
	if strings.HasPrefix(c.text, "export ") || strings.HasPrefix(c.text, "cd ") {
		s.state = append(s.state, c.text)
	}
	return nil
}

// shell runs a command line and returns what it wrote to standard output and standard
// error.
func (s *session) shell(line string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", "")
	run.Dir = s.dir
	run.Env = append(os.Environ(), "HOME="+s.dir) // HOME: no settings of whoever runs the test
	box := s.box
	if box == nil || strings.HasPrefix(line, "helm ") {
		if err := s.startHelm(); err != nil {
			return "", err
		}
		box = s.helm
	}
	run.Env = append(run.Env, box.KubectlEnv()...)
	run.Args[len(run.Args)-1] = strings.Join(append(s.state[:len(s.state):len(s.state)], "export KUBECONFIG="+box.Kubeconfig(), line), "\n")
	run.Env = append(run.Env, "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	output, err := run.CombinedOutput()
	return string(output), err
}

// startSandbox does what make sandbox with these variables does.
func (s *session) startSandbox(environment, variables []string) error {
	options := sandbox.Options{Replicas: 2, Dir: filepath.Join(s.dir, "bin", "sandbox")}
	for _, variable := range variables {
		switch variable {
		case "CLUSTERAPI=1":
			options.ClusterAPI = true
		case "TENANTS=1":
			options.Tenants = true
			options.ManagerArgs = append(options.ManagerArgs, "--tenants")
		case "CONTROLLERS=1":
			options.Controllers = true
		default:
			return fmt.Errorf("make sandbox knows no %s", variable)
		}
	}
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		flag, found := strings.CutPrefix(name, "BUTLER_IPAM_")
		if !found {
			return fmt.Errorf("the manager reads no %s", name)
		}
		options.ManagerArgs = append(options.ManagerArgs, "--"+strings.ToLower(strings.ReplaceAll(flag, "_", "-"))+"="+value)
	}
	if err := s.stopSandbox(); err != nil {
		return err
	}
	var err error
	s.box, err = sandbox.Start(s.t.Context(), options)
	return err
}

// startHelm starts an API server without managers. A sandbox has some objects of the
// chart. They are deleted, except CRDs: the API server may fail to delete a CRD that was
// just created, so Helm is made to take those for objects of the release butler-ipam.
func (s *session) startHelm() (err error) {
	if s.helm != nil {
		return nil
	}
	if s.helm, err = sandbox.Start(s.t.Context(), sandbox.Options{}); err != nil {
		return err
	}
	if err := s.helm.InstallCRDs(s.t.Context(), "bin/crds"); err != nil { // of cert-manager and of the Prometheus operator
		return err
	}
	files := func(patterns ...string) (args []string) {
		for _, pattern := range patterns {
			matching, _ := filepath.Glob(filepath.Join(root, "config", pattern)) // the patterns are valid
			for _, file := range matching {
				args = append(args, "--filename="+file)
			}
		}
		return args
	}
	crds := files("crd/*.io_*.yaml", "crd/*.dev_*.yaml")
	for _, args := range [][]string{
		append([]string{"delete", "--ignore-not-found"}, files("rbac/*role*.yaml", "manager/serviceaccount.yaml", "manager/flowschema.yaml")...),
		append([]string{"label", "app.kubernetes.io/managed-by=Helm"}, crds...),
		append([]string{"annotate", "meta.helm.sh/release-name=butler-ipam", "meta.helm.sh/release-namespace=butler-ipam-system"}, crds...),
	} {
		if _, _, err := s.helm.Kubectl(s.t.Context(), "", args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) stop() (err error) {
	if s.helm != nil {
		err = s.helm.Stop()
	}
	return errors.Join(err, s.stopSandbox())
}

func (s *session) stopSandbox() (err error) {
	if s.box != nil {
		err = errors.Join(s.box.CheckLogs(), s.box.Stop())
		s.box = nil
	}
	return err
}

// isElsewhere reports whether the list elsewhere has this command or file.
func (s *session) isElsewhere(text string) bool {
	for i := range elsewhere {
		if o := &elsewhere[i]; o.document == s.document && o.pattern.MatchString(text) {
			s.used[o] = true
			return true
		}
	}
	return false
}
