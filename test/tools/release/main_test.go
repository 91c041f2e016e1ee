package main

import (
	"archive/zip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCheckVersion(t *testing.T) {
	for version, refused := range map[string]string{
		"v1.2.3":             "",
		"v0.1.0-rc.1":        "",
		"":                   "VERSION is not set",
		"dev":                "must be a semantic version",
		"9135be1":            "must be a semantic version",
		"1.2.3":              "must be a semantic version",
		"v1.2":               "must be a semantic version",
		"v01.2.3":            "must be a semantic version",
		"v1.2.3+build":       "must be a semantic version", // no tag of an image
		"v1.2.3-dirty":       "without changes",
		"v1.2.3-5-g9135be1":  "not that of a tagged commit",
		"v1.2.3-rc.1-dirty":  "without changes",
		"v1.2.3; rm -rf tmp": "must be a semantic version",
	} {
		err := checkVersion(version)
		if refused == "" && err == nil {
			continue
		}
		if refused == "" || err == nil || !strings.Contains(err.Error(), refused) || !strings.Contains(err.Error(), "set VERSION=v1.2.3") {
			t.Errorf("%q: %v, want %q and the remedy", version, err, refused)
		}
	}
}

// repository returns a git repository with one commit.
func repository(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"} {
		t.Setenv(name, "test")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	mustGit(t, dir, "init", "--quiet")
	commit(t, dir, "state: first")
	return dir
}

func mustGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := git(dir, args...); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, dir, subject string) {
	t.Helper()
	mustGit(t, dir, "commit", "--quiet", "--allow-empty", "--message="+subject)
}

func TestCheckClean(t *testing.T) {
	dir := repository(t)
	if err := checkClean(dir); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := checkClean(dir); err == nil || !strings.Contains(err.Error(), "commit or stash them:\n?? new.go") {
		t.Errorf("with a new file: %v", err)
	}
}

func TestNotes_SinceThePreviousTag(t *testing.T) {
	dir := repository(t)
	notes := func() string {
		r := release{version: "v0.2.0", image: "registry.example.com/butler-ipam", root: dir, out: t.TempDir()}
		if err := r.writeNotes(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(r.out, "NOTES.md"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := notes(); !strings.HasSuffix(got, "\nThis is the first release.\n") {
		t.Errorf("without a tag:\n%s", got)
	}
	mustGit(t, dir, "tag", "v0.1.0")
	commit(t, dir, "ledger: second")
	commit(t, dir, "chart: third")
	mustGit(t, dir, "tag", "v0.2.0") // of the release itself
	got := notes()
	if !strings.HasPrefix(got, "# Butler IPAM v0.2.0\n") || !strings.HasSuffix(got, "\n## Changes since v0.1.0\n\n- chart: third\n- ledger: second\n") {
		t.Errorf("since v0.1.0:\n%s", got)
	}
}

// The archives have the same bytes each time, and the manifest for krew has their
// checksums.
func TestPlugins_ArchivesAndManifest(t *testing.T) {
	platforms, err := parsePlatforms([]string{"linux/amd64", "darwin/arm64", "windows/amd64"})
	if err != nil {
		t.Fatal(err)
	}
	plugins := t.TempDir()
	for _, p := range platforms {
		dir := filepath.Join(plugins, p.OS, p.Arch)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p.Binary()), []byte(p.OS+p.Arch), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var outs []string
	for range 2 {
		r := release{version: "v1.2.3", url: "https://downloads.example.com/v1.2.3/", root: "../../..", plugins: plugins, out: t.TempDir(), platforms: platforms, date: time.Unix(1e9, 0)}
		for _, write := range []func() error{r.writePlugins, r.writeKrewManifest, r.writeChecksums} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		outs = append(outs, r.out)
	}
	for _, p := range platforms {
		files := map[string]string{}
		for _, out := range outs {
			text, err := os.ReadFile(filepath.Join(out, p.Archive()))
			if err != nil {
				t.Fatal(err)
			}
			files[out] = string(text)
		}
		if files[outs[0]] != files[outs[1]] {
			t.Errorf("%s differs between two runs", p.Archive())
		}
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(files[outs[0]])))
		manifest, err := os.ReadFile(filepath.Join(outs[0], "ipam.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if want := "uri: https://downloads.example.com/v1.2.3/" + p.Archive() + "\n    sha256: " + sum + "\n"; !strings.Contains(string(manifest), want) {
			t.Errorf("the manifest lacks %q:\n%s", want, manifest)
		}
	}
	archive, err := zip.OpenReader(filepath.Join(outs[0], "kubectl-ipam_windows_amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var names []string
	for _, f := range archive.File {
		names = append(names, f.Name)
	}
	if want := []string{"LICENSE", "kubectl-ipam.exe", "kubectl_complete-ipam.cmd"}; !slices.Equal(names, want) {
		t.Errorf("the archive for Windows has %q, want %q", names, want)
	}
}
