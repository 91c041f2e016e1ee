package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// platform is a platform that the plugin is built for.
type platform struct{ OS, Arch string }

// parsePlatforms parses OS/ARCH.
func parsePlatforms(names []string) (all []platform, err error) {
	for _, name := range names {
		goos, arch, found := strings.Cut(name, "/")
		if !found {
			return nil, fmt.Errorf("platform %q must be OS/ARCH, as linux/amd64", name)
		}
		all = append(all, platform{goos, arch})
	}
	if len(all) == 0 {
		return nil, errors.New("no platform: name at least one, as linux/amd64")
	}
	return all, nil
}

// Binary returns the name of the plugin's program.
func (p platform) Binary() string {
	if p.OS == "windows" {
		return "kubectl-ipam.exe"
	}
	return "kubectl-ipam"
}

// Completion returns the name of the program that kubectl runs to complete the plugin's
// arguments. On Windows its suffix is one of PATHEXT.
func (p platform) Completion() string {
	if p.OS == "windows" {
		return "kubectl_complete-ipam.cmd"
	}
	return "kubectl_complete-ipam"
}

// Archive returns the name of the archive.
func (p platform) Archive() string {
	name := "kubectl-ipam_" + p.OS + "_" + p.Arch
	if p.OS == "windows" {
		return name + ".zip"
	}
	return name + ".tar.gz"
}

// file is a file of an archive.
type file struct {
	name string
	mode fs.FileMode
	text []byte
}

// writePlugins writes one archive per platform.
func (r *release) writePlugins() error {
	source := filepath.Join(r.root, "cmd", "kubectl-ipam")
	for _, p := range r.platforms {
		var files []file
		for _, from := range []struct {
			path string
			mode fs.FileMode
		}{
			{filepath.Join(r.root, "LICENSE"), 0o644},
			{filepath.Join(r.plugins, p.OS, p.Arch, p.Binary()), 0o755},
			{filepath.Join(source, p.Completion()), 0o755},
		} {
			text, err := os.ReadFile(from.path)
			if err != nil {
				return err
			}
			files = append(files, file{filepath.Base(from.path), from.mode, text})
		}
		archive := r.tarball
		if p.OS == "windows" {
			archive = r.zip
		}
		var out bytes.Buffer
		if err := archive(&out, files); err != nil {
			return fmt.Errorf("%s: %w", p.Archive(), err)
		}
		if err := r.write(p.Archive(), out.String()); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) tarball(out io.Writer, files []file) error {
	compressed := gzip.NewWriter(out)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.text)), ModTime: r.date})
		if err != nil {
			return err
		}
		if _, err := w.Write(f.text); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

func (r *release) zip(out io.Writer, files []file) error {
	w := zip.NewWriter(out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.date}
		header.SetMode(f.mode)
		part, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := part.Write(f.text); err != nil {
			return err
		}
	}
	return w.Close()
}

// krew is the manifest of the plugin for krew:
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
var krew = template.Must(template.New("ipam.yaml").Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: ipam
spec:
  version: {{.Version}}
  homepage: {{.URL}}
  shortDescription: Show who owns which IP address
  description: |
    Shows pools, claims and addresses of Butler IPAM, across all kinds: IPAllocation,
    IPClaim, IPAddressClaim and ProxyVIP. It reads API objects and writes nothing.
  caveats: |
    krew puts the plugin into PATH, and not the program that completes its arguments.
    For completion copy kubectl_complete-ipam from the archive into a directory of PATH.
  platforms:
{{- range .Platforms}}
  - selector:
      matchLabels:
        os: {{.OS}}
        arch: {{.Arch}}
    uri: {{$.URL}}/{{.Archive}}
    sha256: {{.Sum}}
    bin: {{.Binary}}
{{- end}}
`))

func (r *release) writeKrewManifest() error {
	type summed struct {
		platform
		Sum string
	}
	data := struct {
		Version, URL string
		Platforms    []summed
	}{r.version, strings.TrimSuffix(r.url, "/"), nil}
	for _, p := range r.platforms {
		sum, err := r.sum(p.Archive())
		if err != nil {
			return err
		}
		data.Platforms = append(data.Platforms, summed{p, sum})
	}
	var out strings.Builder
	if err := krew.Execute(&out, data); err != nil {
		return err
	}
	return r.write("ipam.yaml", out.String())
}

// sum returns the SHA-256 checksum of a file of the release.
func (r *release) sum(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.out, name))
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}

// writeChecksums lists all files in the format of sha256sum.
func (r *release) writeChecksums() error {
	const name = "SHA256SUMS"
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, entry := range entries {
		if entry.Name() == name {
			continue
		}
		sum, err := r.sum(entry.Name())
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s  %s\n", sum, entry.Name())
	}
	return r.write(name, out.String())
}
