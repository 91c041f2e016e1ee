package plugin

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/test/suite"
)

// kubectl completes the arguments of the plugin. kubectl runs kubectl_complete-ipam,
// which make build writes into the folder of the plugin.
func TestCompletion_ThroughKubectl(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "completed", "10.70.0.0/24", ns))
	complete := func(args ...string) string {
		t.Helper()
		var problems bytes.Buffer
		command := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(binary), "kubectl"), append([]string{"__complete", "ipam"}, args...)...)
		command.Env = append(append(os.Environ(), cluster.KubectlEnv()...), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		command.Stderr = &problems
		out, err := command.Output()
		if err != nil {
			t.Fatalf("kubectl __complete ipam %q: %v: %s", args, err, problems.String())
		}
		return string(out)
	}
	if got := complete(""); !strings.Contains(got, "\nwho\t") || !strings.Contains(got, "\npools\t") {
		t.Errorf("the commands are completed to %q", got)
	}
	if got := complete("map", ns+"/"); !strings.HasPrefix(got, ns+"/completed\tNetworkPool\n") {
		t.Errorf("the pools of namespace %s are completed to %q", ns, got)
	}
	for _, args := range [][]string{{"map", "complet"}, {"map", "-n", ns, ""}, {"claims", "--pool", "complet"}} {
		if got := complete(args...); !strings.HasPrefix(got, "completed\tNetworkPool\n") {
			t.Errorf("%q is completed to %q", args, got)
		}
	}
	if got := complete("pools", "--domain", ns[:len(ns)-1]); !strings.HasPrefix(got, ns+"\n") {
		t.Errorf("the routing domain is completed to %q", got)
	}
	if got := complete("pools", "--output", "j"); !strings.Contains(got, "\njson\n") {
		t.Errorf("the format is completed to %q", got)
	}
}
