//go:build release

package main

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const (
	tag   = "v98.7.6"
	image = "registry.example.com/platform/butler-ipam"
)

// tools is bin/ of the checkout.
func tools(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// clone clones the last commit of the checkout.
func clone(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "checkout")
	mustGit(t, "../../..", "clone", "--quiet", ".", dir)
	return dir
}

// makeRelease runs make release in a clone. The programs that build the release are those
// of the checkout.
func makeRelease(t *testing.T, checkout, out string, args ...string) (output string, err error) {
	t.Helper()
	bin := tools(t)
	command := exec.CommandContext(t.Context(), "make", append([]string{"--directory=" + checkout, "release", "BIN=" + bin, "RELEASE=" + out,
		"--old-file=" + filepath.Join(bin, "helm"), "--old-file=" + filepath.Join(bin, "kustomize")}, args...)...)
	text, err := command.CombinedOutput()
	return string(text), err
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func output(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	out, err := run(".", env, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Two releases of one commit, in different directories, have the same bytes. All of one
// release bears its version, and krew installs the plugin for every platform.
func TestRelease(t *testing.T) {
	first := filepath.Join(t.TempDir(), "first")
	server := httptest.NewServer(http.FileServer(http.Dir(first)))
	t.Cleanup(server.Close)
	second := filepath.Join(t.TempDir(), "second")
	for _, out := range []string{first, second} {
		checkout := clone(t)
		mustGit(t, checkout, "tag", tag) // make takes the version from it
		if text, err := makeRelease(t, checkout, out, "IMAGE="+image, "RELEASE_URL="+server.URL); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	entries, err := os.ReadDir(first)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
		if !bytes.Equal(read(t, first, entry.Name()), read(t, second, entry.Name())) {
			t.Errorf("%s differs between two releases of one commit", entry.Name())
		}
	}
	want := []string{
		"NOTES.md", "SHA256SUMS", "butler-ipam-98.7.6.tgz", "butler-ipam-image.amd64.cdx.json", "butler-ipam-image.arm64.cdx.json", "butler-ipam-image.tar", "install.yaml",
		"ipam.yaml", "kubectl-ipam_darwin_amd64.tar.gz", "kubectl-ipam_darwin_arm64.tar.gz", "kubectl-ipam_linux_amd64.tar.gz", "kubectl-ipam_linux_arm64.tar.gz",
		"kubectl-ipam_windows_amd64.zip", "kubectl-ipam_windows_arm64.zip",
	}
	if !slices.Equal(names, want) {
		t.Errorf("the release has %q, want %q", names, want)
	}

	t.Run("checksums", func(t *testing.T) {
		command := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		command.Dir = first
		if text, err := command.CombinedOutput(); err != nil || strings.Count(string(text), ": OK\n") != len(want)-1 {
			t.Errorf("%v\n%s", err, text)
		}
	})
	t.Run("chart", func(t *testing.T) {
		helm, chart := filepath.Join(tools(t), "helm"), filepath.Join(first, "butler-ipam-98.7.6.tgz")
		if text := output(t, nil, helm, "show", "chart", chart); !strings.Contains(text, "\nversion: 98.7.6\n") || !strings.Contains(text, "\nappVersion: "+tag+"\n") && !strings.HasPrefix(text, "appVersion: "+tag+"\n") {
			t.Errorf("the chart is\n%s", text)
		}
		if text := output(t, nil, helm, "template", "butler-ipam", chart); !strings.Contains(text, "image: "+image+":"+tag+"\n") {
			t.Errorf("the chart does not install %s:%s", image, tag)
		}
	})
	t.Run("manifests", func(t *testing.T) {
		images := regexp.MustCompile(`(?m)^ +image: (.*)$`).FindAllSubmatch(read(t, first, "install.yaml"), -1)
		if len(images) != 1 || string(images[0][1]) != image+":"+tag {
			t.Errorf("install.yaml has the images %q", images)
		}
	})
	t.Run("image", func(t *testing.T) {
		// The name of the image is in the index, which the archive has uncompressed.
		// TestImage of test/tools/image reads the rest.
		if !bytes.Contains(read(t, first, "butler-ipam-image.tar"), []byte(image+":"+tag)) {
			t.Errorf("the archive does not contain %s:%s", image, tag)
		}
		for _, arch := range []string{"amd64", "arm64"} {
			if !bytes.Contains(read(t, first, "butler-ipam-image."+arch+".cdx.json"), []byte(`"version": "`+tag+`"`)) {
				t.Errorf("the bill of materials for %s does not have the version", arch)
			}
		}
		binary := filepath.Join(tools(t), "image", runtime.GOARCH, "butler-ipam")
		if got := output(t, nil, binary, "--version"); got != tag+"\n" {
			t.Errorf("butler-ipam --version: %q", got)
		}
	})
	t.Run("windows", func(t *testing.T) {
		archive, err := zip.OpenReader(filepath.Join(first, "kubectl-ipam_windows_amd64.zip"))
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		for _, name := range []string{"LICENSE", "kubectl-ipam.exe", "kubectl_complete-ipam.cmd"} {
			if _, err := fs.Stat(archive, name); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("plugin", func(t *testing.T) {
		dir := t.TempDir()
		output(t, nil, "tar", "--extract", "--directory="+dir, "--file="+filepath.Join(first, "kubectl-ipam_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz"))
		if got := output(t, nil, filepath.Join(dir, "kubectl-ipam"), "version"); got != tag+"\n" {
			t.Errorf("kubectl ipam version: %q", got)
		}
		if !bytes.Equal(read(t, dir, "LICENSE"), read(t, "../../../LICENSE")) {
			t.Error("the archive has another LICENSE")
		}
		path := "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")
		if got := output(t, []string{path}, filepath.Join(dir, "kubectl_complete-ipam"), "vers"); !strings.HasPrefix(got, "version\t") {
			t.Errorf("the completion of vers is %q", got)
		}
	})
	t.Run("krew", func(t *testing.T) {
		dir := t.TempDir()
		output(t, nil, "go", "build", "-o", filepath.Join(dir, "kubectl-krew"), "sigs.k8s.io/krew/cmd/krew")
		output(t, nil, "go", "build", "-o", dir, "sigs.k8s.io/krew/cmd/validate-krew-manifest")
		path := "PATH=" + dir + string(os.PathListSeparator) + tools(t) + string(os.PathListSeparator) + os.Getenv("PATH")
		// It installs the plugin for each platform, from the server of this test.
		output(t, []string{path, "KREW_NO_UPGRADE_CHECK=1"}, filepath.Join(dir, "validate-krew-manifest"), "-manifest", filepath.Join(first, "ipam.yaml"))
	})
}

// A release is made of a tagged commit. What is refused leaves the earlier release alone.
func TestRelease_Refused(t *testing.T) {
	checkout, out := clone(t), t.TempDir()
	earlier := filepath.Join(out, "SHA256SUMS")
	if err := os.WriteFile(earlier, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused := func(reason string, args ...string) {
		t.Helper()
		if text, err := makeRelease(t, checkout, out, args...); err == nil || !strings.Contains(text, reason) {
			t.Errorf("make release %q: %v, want %q:\n%s", args, err, reason, text)
		}
		if _, err := os.Stat(earlier); err != nil {
			t.Error(err)
		}
	}
	refused("VERSION is not set", "VERSION=")
	refused("must be a semantic version", "VERSION=dev")
	refused("not that of a tagged commit", "VERSION=v1.2.3-4-g1234567")
	mustGit(t, checkout, "tag", tag)
	if err := os.WriteFile(filepath.Join(checkout, "LICENSE"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused("the checkout has changes")
	refused("the checkout has changes", "VERSION=v1.2.3")
}
