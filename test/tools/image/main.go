// Command image writes an OCI archive and a bill of materials from static binaries,
// without a container engine. The image contains only the binary, like the image that the
// Dockerfile builds. The same binaries always give the same bytes.
//
//	image -name NAME:TAG -out IMAGE.tar ARCH=BINARY...
//
// With several architectures the archive contains an image index, otherwise one image.
// For each architecture the bill of materials is written beside the archive, as
// IMAGE.ARCH.cdx.json in the format CycloneDX. It identifies the image by its digest.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	name := flag.String("name", "", "`NAME:TAG` of the image")
	out := flag.String("out", "", "`file` to write the archive to")
	flag.Parse()
	digest, err := run(*name, *out, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(*out, *name, digest)
}

func run(name, out string, binaries []string) (digest v1.Hash, err error) {
	images := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range binaries {
		arch, binary, found := strings.Cut(arg, "=")
		if !found {
			return digest, fmt.Errorf("%q must be ARCH=BINARY", arg)
		}
		image, err := imageOf(arch, binary)
		if err != nil {
			return digest, err
		}
		if digest, err = image.Digest(); err != nil {
			return digest, err
		}
		if err := writeBill(strings.TrimSuffix(out, ".tar")+"."+arch+".cdx.json", binary, name, digest); err != nil {
			return digest, err
		}
		platform := v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}, Annotations: named(name)}
		images = mutate.AppendManifests(images, mutate.IndexAddendum{Add: image, Descriptor: platform})
	}
	if len(binaries) > 1 { // one name for all of them
		if digest, err = images.Digest(); err != nil {
			return digest, err
		}
		images = mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{Add: images, Descriptor: v1.Descriptor{Annotations: named(name)}})
	}
	return digest, archive(images, out)
}

// named is how archives say what an image is called: to containerd in full, to others by
// its tag.
func named(name string) map[string]string {
	return map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:]}
}

// imageOf makes what the last stage of the Dockerfile does.
func imageOf(arch, binary string) (v1.Image, error) {
	layer, err := layerOf(binary)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer}); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config.User, config.Config.Entrypoint = "65532:65532", []string{"/" + filepath.Base(binary)}
	return mutate.ConfigFile(image, config)
}

func layerOf(binary string) (v1.Layer, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := add(w, filepath.Base(binary), 0o755, content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// add writes a file that is root's and has no date.
func add(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// archive writes an index as the OCI layout of an archive, files in the order of their
// names.
func archive(index v1.ImageIndex, out string) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	var all bytes.Buffer
	w := tar.NewWriter(&all)
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		return add(w, path, 0o644, content)
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(out, all.Bytes(), 0o644)
}
