package envtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	runs   = "#!/bin/sh\necho v1.36.1\n"
	broken = "#!/bin/sh\necho 'cannot execute: required file not found' >&2; exit 126\n"
)

// release is an archive as setup-envtest's index names it.
func release(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for name, text := range files {
		header := &tar.Header{Name: "controller-tools/envtest/" + name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestPrebuilt(t *testing.T) {
	complete := map[string]string{"etcd": runs, "kube-apiserver": runs, "kubectl": runs}
	cases := map[string]struct {
		files   map[string]string
		version string // of the release; 1.36.1 where empty
		sum     string // what the index says; the right one where empty
		serve   func(http.ResponseWriter, *http.Request, []byte)
		index   string // in place of the server's
		want    string // what is printed; the control plane is there where it is "downloading"
	}{
		"release of the minor version": {files: complete, want: "downloading"},
		"release of another minor":     {files: complete, version: "1.35.4", want: "the index has none"},
		"wrong checksum":               {files: complete, sum: strings.Repeat("0", 128), want: "checksum mismatch"},
		"no kubectl":                   {files: map[string]string{"etcd": runs, "kube-apiserver": runs}, want: "the release has no kubectl"},
		"for another machine":          {files: map[string]string{"etcd": broken, "kube-apiserver": runs, "kubectl": runs}, want: "its etcd does not run: cannot execute"},
		"download that ends early": {
			files: complete, want: "unexpected EOF",
			serve: func(w http.ResponseWriter, _ *http.Request, archive []byte) {
				w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
				_, _ = w.Write(archive[:len(archive)/2])
			},
		},
		"download that stops": {
			files: complete, want: "setup-envtest use took longer than 2 s",
			serve: func(w http.ResponseWriter, r *http.Request, archive []byte) {
				w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
				_, _ = w.Write(archive[:len(archive)/2])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			},
		},
		"no such archive": {files: complete, want: "404", serve: func(w http.ResponseWriter, r *http.Request, _ []byte) { http.NotFound(w, r) }},
		"closed network":  {index: "http://127.0.0.1:1/index.yaml", want: "connection refused"},
		"silent network":  {index: "silent", want: "setup-envtest list took longer than 2 s"},
		"switched off":    {index: "none", want: ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive := release(t, tc.files)
			version := tc.version
			if version == "" {
				version = "1.36.1"
			}
			sum := tc.sum
			if sum == "" {
				sum = fmt.Sprintf("%x", sha512.Sum512(archive))
			}
			file := fmt.Sprintf("envtest-v%s-%s-%s.tar.gz", version, runtime.GOOS, runtime.GOARCH)
			mux := http.NewServeMux()
			server := httptest.NewServer(mux)
			defer server.Close()
			mux.HandleFunc("/index.yaml", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, "releases: {v%s: {%s: {hash: %s, selfLink: %s/%[2]s}}}\n", version, file, sum, server.URL)
			})
			mux.HandleFunc("/"+file, func(w http.ResponseWriter, r *http.Request) {
				if tc.serve != nil {
					tc.serve(w, r, archive)
					return
				}
				_, _ = w.Write(archive)
			})
			index := server.URL + "/index.yaml"
			switch tc.index {
			case "":
			case "silent": // accepts connections and never answers
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer listener.Close()
				index = "http://" + listener.Addr().String()
			default:
				index = tc.index
			}

			folder := t.TempDir()
			dir := filepath.Join(folder, "prebuilt")
			script := exec.CommandContext(t.Context(), "./prebuilt.sh", "v1.36.3", dir)
			bounds := []string{"", ""}
			if strings.Contains(tc.want, "took longer") {
				bounds = []string{"ENVTEST_INDEX_SECONDS=2", "ENVTEST_DOWNLOAD_SECONDS=2"}
			}
			script.Env = append(os.Environ(), slices.Concat([]string{"ENVTEST_INDEX=" + index}, bounds)...)
			began := time.Now()
			out, err := script.CombinedOutput()
			t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), out)
			if err != nil {
				t.Fatalf("exits with %v: make would not build the control plane", err)
			}
			if !strings.Contains(string(out), tc.want) {
				t.Errorf("prints %q, want %q in it", out, tc.want)
			}
			var want []string
			if tc.want == "downloading" {
				want = []string{"etcd", "kube-apiserver", "kubectl"}
			}
			if got := names(t, dir); !slices.Equal(got, want) {
				t.Errorf("the directory has %q, want %q", got, want)
			}
			if got := names(t, folder); !slices.Equal(got, []string{"prebuilt"}) {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, entry := range entries {
		out = append(out, entry.Name())
	}
	return out
}
