package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const (
	root    = "../../.."
	version = "v0.0.0-test"
)

// build runs `make image` in a checkout, and gives the directory with what it has made.
func build(t *testing.T, checkout string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	command := exec.CommandContext(t.Context(), "make", "-C", checkout, "image", "BIN="+bin, "VERSION="+version)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// elsewhere is a copy of the product's source without its history, as the Dockerfile has
// it.
func elsewhere(t *testing.T) (checkout string) {
	t.Helper()
	checkout = t.TempDir()
	for _, name := range []string{"api", "allocator", "cmd", "reconcilers", "webhooks", "test/tools", "test/controlplane"} {
		if err := os.CopyFS(filepath.Join(checkout, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "Makefile"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(checkout, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return checkout
}

func TestImage_Reproducible(t *testing.T) {
	first, second := build(t, root), build(t, elsewhere(t))
	for _, name := range []string{"butler-ipam-image.tar", "butler-ipam-image." + runtime.GOARCH + ".cdx.json"} {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs between two builds", name)
		}
	}
	image := only(t, filepath.Join(first, "butler-ipam-image.tar"))
	isTheDockerfiles(t, image)
	isListed(t, image, filepath.Join(first, "butler-ipam-image."+runtime.GOARCH+".cdx.json"))
}

// only is the one image of an archive, every blob of it checked against its digest.
func only(t *testing.T, path string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(unpack(t, path))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["io.containerd.image.name"] != "docker.io/library/butler-ipam:"+version {
		t.Fatalf("the archive holds %+v", manifest.Manifests)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func unpack(t *testing.T, path string) (dir string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dir = t.TempDir()
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(header.Name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, header.Name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// isTheDockerfiles checks an image against the last stage of the Dockerfile: who runs
// what, and that there is nothing else.
func isTheDockerfiles(t *testing.T, image v1.Image) {
	t.Helper()
	dockerfile, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	stage := regexp.MustCompile(`(?s)FROM scratch\nCOPY --from=build /butler-ipam (\S+)\nUSER (\S+)\nENTRYPOINT \["(\S+)"\]\n$`).FindStringSubmatch(string(dockerfile))
	if stage == nil {
		t.Fatalf("the Dockerfile has another last stage:\n%s", dockerfile)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config; got.User != stage[2] || len(got.Entrypoint) != 1 || got.Entrypoint[0] != stage[3] || config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("image for %s/%s: %+v", config.OS, config.Architecture, got)
	}
	r := tar.NewReader(mutate.Extract(image))
	header, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if "/"+header.Name != stage[1] || header.Mode != 0o755 || header.Uid != 0 || header.ModTime.Unix() != 0 {
		t.Errorf("file %+v", header)
	}
	binary := filepath.Join(t.TempDir(), "butler-ipam")
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, content, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), binary, "--version").Output(); err != nil || strings.TrimSpace(string(out)) != version {
		t.Errorf("--version: %q, %v", out, err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Error("there is another file in the image")
	}
}

// isListed checks that the bill of materials is of this image, and that it has what the
// product requires.
func isListed(t *testing.T, image v1.Image, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	bill := cdx.NewBOM()
	if err := cdx.NewBOMDecoder(file, cdx.BOMFileFormatJSON).Decode(bill); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got := (*bill.Metadata.Component.Hashes)[0].Value; got != digest.Hex {
		t.Errorf("the bill is of %s, the image is %s", got, digest)
	}
	modules, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sigs.k8s.io/controller-runtime", "github.com/prometheus/client_golang"} {
		want := regexp.MustCompile(regexp.QuoteMeta(name) + ` (\S+)`).FindStringSubmatch(string(modules))[1]
		found := false
		for _, c := range *bill.Components {
			found = found || c.Name == name && c.Version == want && c.PackageURL == "pkg:golang/"+name+"@"+want
		}
		if !found {
			t.Errorf("%s %s is not in the bill of materials", name, want)
		}
	}
}
