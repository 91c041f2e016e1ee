//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The node's name, and its addresses, which exist in its own network namespace only
// (198.18.0.0/15 is kept for tests of networks).
const (
	nodeName   = "node"
	nodeIP     = "198.18.255.1"
	podCIDR    = "198.18.0.0/24"
	serviceIPs = "198.19.0.0/16"
	apiIP      = "198.19.0.1" // the first of serviceIPs is that of the Service kubernetes
	dnsIP      = "198.19.0.10"
)

// cgroup holds all pods, and memoryLimit bounds them together.
const (
	cgroup      = "butler-ipam-cluster"
	memoryLimit = 6 << 30
)

// node is a cluster by its directory: etc/ holds what its components read, state/ what
// they keep, logs/ what they say.
type node struct{ dir string }

func (n node) file(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

func (n node) pki(name string) string { return n.file("state", "pki", name) }

// in is the script that runs a command on the node.
func (n node) in() string { return n.file("in") }

// script knows the node's first process by its command line: its number may have become
// another's.
const script = `#!/bin/sh
# Runs a command on the cluster's node, as the cluster's administrator: in kubectl get pods
pid=$(cat '%[1]s/pid' 2>/dev/null)
if [ "$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")" != '%[2]s ' ]; then
	echo 'the cluster is not up: make cluster-up' >&2
	exit 1
fi
export CLUSTER_DIR='%[1]s' KUBECONFIG='%[1]s/state/pki/admin.kubeconfig' PATH='%[3]s'
exec nsenter --target "$pid" --mount --net --uts --pid --wd="$PWD" -- "$@"
`

func (n node) writeScripts(initArgs []string) error {
	text := fmt.Sprintf(script, n.dir, strings.Join(initArgs, " "), os.Getenv("PATH"))
	if err := os.WriteFile(n.in(), []byte(text), 0o755); err != nil {
		return err
	}
	return os.WriteFile(n.file("kubectl"), []byte("#!/bin/sh\nexec '"+n.in()+"' kubectl \"$@\"\n"), 0o755)
}

// run runs a command on the node.
func (n node) run(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, n.in(), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// isUp says whether the node's first process is there.
func (n node) isUp(ctx context.Context) bool { return n.run(ctx, "true") == nil }
