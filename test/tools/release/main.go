// Command release writes the files of a release from binaries that are built already: the
// chart, the manifests, an archive of the plugin per platform, the manifest for krew, the
// notes and the checksums. The same commit, version and flags always give the same bytes.
//
//	release -version v1.2.3 -check
//	release -version v1.2.3 -image REPOSITORY -url URL -plugins DIR -tools DIR -out DIR OS/ARCH...
//
// With -check the command only refuses what must not be released.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// release is one release and where its parts are.
type release struct {
	version string // v1.2.3
	image   string // repository of the image
	url     string // directory from which users download the files
	root    string // the checkout
	plugins string // directory with GOOS/GOARCH/kubectl-ipam
	tools   string // directory with helm and kustomize
	out     string

	platforms []platform
	date      time.Time // of the commit; every file in an archive has it
}

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "`version` of the release, such as v1.2.3")
	flag.StringVar(&r.image, "image", "", "`repository` of the image")
	flag.StringVar(&r.url, "url", "", "`URL` of the directory from which users download the files")
	flag.StringVar(&r.plugins, "plugins", "", "`directory` with GOOS/GOARCH/kubectl-ipam")
	flag.StringVar(&r.tools, "tools", "", "`directory` with helm and kustomize")
	flag.StringVar(&r.out, "out", "", "`directory` of the release, which has the images already")
	check := flag.Bool("check", false, "check version and checkout, and write nothing")
	flag.Parse()
	if err := r.run(*check, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run(check bool, platforms []string) (err error) {
	if r.root, err = git(".", "rev-parse", "--show-toplevel"); err != nil {
		return err
	}
	if err := errors.Join(checkVersion(r.version), checkClean(r.root)); err != nil || check {
		return err
	}
	if r.platforms, err = parsePlatforms(platforms); err != nil {
		return err
	}
	seconds, err := git(r.root, "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.date = time.Unix(unix, 0).UTC()
	for _, write := range []func() error{r.writeChart, r.writeManifests, r.writePlugins, r.writeKrewManifest, r.writeNotes, r.writeChecksums} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

var (
	versions = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
	// unreleased matches what git describe adds to a tag: the number of commits after the
	// tag, and changes that are not committed.
	unreleased = regexp.MustCompile(`-\d+-g[0-9a-f]+$|-dirty$`)
)

// checkVersion returns an error unless a version names one release.
func checkVersion(version string) error {
	const remedy = "tag the commit (git tag -a v1.2.3), or set VERSION=v1.2.3"
	switch {
	case version == "":
		return errors.New("VERSION is not set: " + remedy)
	case !versions.MatchString(version):
		return fmt.Errorf("VERSION %q must be a semantic version that begins with v: %s", version, remedy)
	case unreleased.MatchString(version):
		return fmt.Errorf("VERSION %q is not that of a tagged commit without changes: %s", version, remedy)
	}
	return nil
}

// checkClean returns an error if the checkout has changes that are not committed.
func checkClean(root string) error {
	changes, err := git(root, "status", "--porcelain")
	if err == nil && changes != "" {
		err = fmt.Errorf("the checkout has changes, and a release is made of one commit: commit or stash them:\n%s", changes)
	}
	return err
}

// writeChart packages the chart with the version and the image of the release.
func (r *release) writeChart() error {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	chart := filepath.Join(dir, "butler-ipam")
	if err := os.CopyFS(chart, os.DirFS(filepath.Join(r.root, "charts", "butler-ipam"))); err != nil {
		return err
	}
	const setting = "\n  repository: butler-ipam\n"
	values := filepath.Join(chart, "values.yaml")
	text, err := os.ReadFile(values)
	if err != nil {
		return err
	}
	if bytes.Count(text, []byte(setting)) != 1 {
		return fmt.Errorf("charts/butler-ipam/values.yaml must have the line %q once", strings.TrimSpace(setting))
	}
	text = bytes.Replace(text, []byte(setting), []byte("\n  repository: "+r.image+"\n"), 1)
	if err := os.WriteFile(values, text, 0o644); err != nil {
		return err
	}
	_, err = run(r.root, []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix())}, filepath.Join(r.tools, "helm"),
		"package", chart, "--version", strings.TrimPrefix(r.version, "v"), "--app-version", r.version, "--destination", r.out)
	return err
}

// writeManifests renders config/default with the image of the release.
func (r *release) writeManifests() error {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	config, err := filepath.Rel(dir, filepath.Join(r.root, "config", "default")) // kustomize accepts no absolute path
	if err != nil {
		return err
	}
	kustomization := fmt.Sprintf("resources: [%q]\nimages: [{name: butler-ipam, newName: %q, newTag: %q}]\n", filepath.ToSlash(config), r.image, r.version)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o644); err != nil {
		return err
	}
	text, err := run(r.root, nil, filepath.Join(r.tools, "kustomize"), "build", dir)
	if err != nil {
		return err
	}
	return r.write("install.yaml", text)
}

func (r *release) write(name, text string) error {
	return os.WriteFile(filepath.Join(r.out, name), []byte(text), 0o644)
}

// git runs git in a directory, and returns its output without the line break at its end.
func git(dir string, args ...string) (string, error) {
	out, err := run(dir, nil, "git", args...)
	return strings.TrimSuffix(out, "\n"), err
}

func run(dir string, env []string, name string, args ...string) (string, error) {
	var problems bytes.Buffer
	command := exec.Command(name, args...)
	command.Dir, command.Env, command.Stderr = dir, append(os.Environ(), env...), &problems
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(problems.String()))
	}
	return string(out), nil
}
