//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// check looks for what does not come from Go modules.
func check() error {
	var missing []string
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "iptables", "conntrack", "ip", "mount", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if pluginDir() == "" {
		missing = append(missing, "the CNI plugins")
	}
	if len(missing) > 0 {
		return fmt.Errorf("this machine has no %s: make cluster-packages installs what is missing, on Debian and its kin", strings.Join(missing, ", "))
	}
	return nil
}

// pluginDir is where the CNI plugins are.
func pluginDir() string {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir
		}
	}
	return ""
}
