package readme

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const operations = "charts/butler-ipam/README.md"

// flagsOfOthers are flags that documents mention alone, and that are not the manager's.
var flagsOfOthers = []string{
	"--admission-control-config-file", // kube-apiserver
	"--custom-apply-stage-kinds",      // kustomize-controller
	"--force", "--timeout",            // kubectl
	"--take-ownership", "--force-conflicts", "--reset-then-reuse-values", "--set", "--values", // helm
}

// pluginFlags returns the flags of all commands of kubectl ipam.
func pluginFlags(t *testing.T) map[string]bool {
	help := func(command ...string) string {
		out, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "kubectl-ipam"), append(command, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl ipam %v --help: %v: %s", command, err, out)
		}
		return string(out)
	}
	flags := map[string]bool{}
	_, commands, _ := strings.Cut(help(), "Available Commands:\n")
	commands, _, _ = strings.Cut(commands, "\n\n")
	for line := range strings.Lines(commands) {
		for _, m := range regexp.MustCompile(`(?m)^ +(?:-[a-zA-Z], )?(--[a-z-]+)`).FindAllStringSubmatch(help(strings.Fields(line)[0]), -1) {
			flags[m[1]] = true
		}
	}
	if len(flags) < 20 {
		t.Fatalf("the commands have %d flags", len(flags))
	}
	return flags
}

func TestFlags(t *testing.T) {
	help, _ := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "butler-ipam"), "--help").CombinedOutput()
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  (--[a-z-]+)`).FindAllStringSubmatch(string(help), -1) {
		known[m[1]] = true
	}
	if len(known) < 20 {
		t.Fatalf("the help has %d flags:\n%s", len(known), help)
	}
	plugin := pluginFlags(t)
	mentioned := map[string]bool{}
	for name, d := range documents(t) {
		for _, code := range d.code {
			flag := regexp.MustCompile(`^--[a-z-]+`).FindString(code)
			if flag == "" {
				continue
			}
			if !known[flag] && !plugin[flag] && !slices.Contains(flagsOfOthers, flag) && !strings.Contains(code, " ") {
				t.Errorf("%s: no flag %s", name, flag)
			}
			if name == operations {
				mentioned[flag] = true
			}
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(known)) {
		if !mentioned[flag] {
			t.Errorf("%s does not mention %s", operations, flag)
		}
	}
}

func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range documents(t) {
		for _, code := range d.code {
			if m := regexp.MustCompile(`^make ([a-z-]+)`).FindStringSubmatch(code); m != nil && !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: no target: %s", name, code)
			}
		}
	}
}

// Documents name directories and files by their path in the repository, or beside the
// document.
func TestPaths(t *testing.T) {
	path := regexp.MustCompile(`^(?:api|allocator|cmd|config|charts|reconcilers|test|webhooks)/[a-z0-9/._-]+$`)
	for name, d := range documents(t) {
		for _, code := range d.code {
			if !path.MatchString(code) {
				continue
			}
			_, err := os.Stat(filepath.Join(root, code))
			if _, beside := os.Stat(filepath.Join(root, filepath.Dir(name), code)); err != nil && beside != nil {
				t.Errorf("%s: no path %s", name, code)
			}
		}
	}
}

// The tables of metrics and alerts are complete. Some names in the code are prefixes of
// metrics: they end with "_".
func TestMetricsAndAlerts(t *testing.T) {
	inCode := map[string]bool{}
	literal := regexp.MustCompile(`"(butler_ip[a-z_]*|butler_network_[a-z_]+)"`)
	for _, dir := range []string{"allocator", "cmd", "reconcilers", "webhooks"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
				inCode[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "charts/butler-ipam/files/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`alert: ([A-Za-z]+)`).FindAllStringSubmatch(string(text), -1) {
		inCode[m[1]] = true
	}
	inDocument := map[string]bool{}
	for _, code := range documents(t)[operations].code {
		if regexp.MustCompile(`^(butler_[a-z_]+|ButlerIPAM[A-Za-z]+)$`).MatchString(code) {
			inDocument[code] = true
		}
	}
	if len(inCode) < 20 {
		t.Fatalf("only %d names in the code", len(inCode))
	}
	covers := func(a, b string) bool { return a == b || strings.HasSuffix(b, "_") && strings.HasPrefix(a, b) }
	for name := range inCode {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(inDocument)), func(d string) bool { return covers(d, name) }) {
			t.Errorf("%s does not describe %s", operations, name)
		}
	}
	for name := range inDocument {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(inCode)), func(c string) bool { return covers(name, c) }) {
			t.Errorf("%s describes %s, which does not exist", operations, name)
		}
	}
}
