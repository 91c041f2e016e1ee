// Command demo shows the main features of Butler IPAM on a sandbox of its own. It creates
// a pool and allocations, whose create response contains the addresses, and shows a
// denied allocation and an overview. A shell executes every line that begins with $
// unchanged, with the sandbox's kubectl. The demo fails if a command does not show the
// expected result.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"butlerlabs.dev/ipam/test/sandbox"
)

// step is one command of the demonstration.
type step struct {
	title string
	// await is a command that waits for what the step shows. Its output is not printed.
	await   string
	command string
	// show selects the lines of the output to print; nil prints all.
	show *regexp.Regexp
	// denied is set if the command must fail.
	denied bool
	// want must occur in the output of the command.
	want string
}

// allocated selects the part of an IPAllocation that the admission webhook sets.
var allocated = regexp.MustCompile(`^(spec:|  count:|  pinnedRange:|    (start|end)Address:)`)

var steps = []step{
	{
		title:   "a pool",
		command: "kubectl apply -f config/samples/networkpool.yaml",
		want:    "created",
	},
	{
		title:   "the response to a create contains the addresses; the count is the pool's default for nodes",
		command: "kubectl create -f config/samples/ipallocation-nodes.yaml -o yaml",
		show:    allocated,
		want:    "startAddress: 10.40.0.64",
	},
	{
		title:   "eight addresses for load balancers",
		command: "kubectl create -f config/samples/ipallocation-lb.yaml -o yaml",
		show:    allocated,
		want:    "startAddress: 10.40.0.69",
	},
	{
		title:   "a cluster that requests the addresses it has",
		command: "kubectl create -f config/samples/ipallocation-pinned.yaml -o yaml",
		show:    allocated,
		want:    "startAddress: 10.40.0.100",
	},
	{
		title:   "a create that the pool cannot serve is denied in the same call",
		command: "sed 's/name: my-cluster-lb/name: too-many/; s/count: 8/count: 200/' config/samples/ipallocation-lb.yaml | kubectl create -f -",
		denied:  true,
		want:    "200",
	},
	{
		title:   "allocations and pools, with their addresses",
		await:   "kubectl wait --for=condition=Ready ipa --all --timeout=10s && kubectl wait --for=jsonpath='{.status.allocatedIPs}'=23 np/vlan40-pool --timeout=10s",
		command: "kubectl get ipa,np",
		want:    "legacy-cluster-nodes",
	},
	{
		title:   "the address map of the pool",
		command: "kubectl ipam map vlan40-pool",
		want:    "NNNNN",
	},
	{
		title:   "the owner of an address",
		command: "kubectl ipam who 10.40.0.70",
		want:    "owned by IPAllocation",
	},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() (err error) {
	began := time.Now()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	s, err := sandbox.Start(ctx, sandbox.Options{Dir: filepath.Join("bin", "demo-sandbox"), Replicas: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	fmt.Printf("etcd, kube-apiserver and one manager serve after %.1f s (outputs below are cut to the spec)\n", time.Since(began).Seconds())

	for _, step := range steps {
		if err := step.run(ctx, s); err != nil {
			return fmt.Errorf("demo: %s: %w", step.title, err)
		}
	}
	fmt.Printf("\nThree allocations had their addresses in the response to their create; the fourth was denied with the reason.\n"+
		"Done in %.1f s, start of the cluster included. `make sandbox` starts a cluster to try.\n", time.Since(began).Seconds())
	return nil
}

func (s step) run(ctx context.Context, box *sandbox.Sandbox) error {
	if s.await != "" {
		if output, err := shell(ctx, box, s.await); err != nil {
			return fmt.Errorf("%s: %w: %s", s.await, err, output)
		}
	}
	fmt.Printf("\n# %s\n$ %s\n", s.title, s.command)
	output, err := shell(ctx, box, s.command)
	for line := range strings.Lines(output) {
		if s.show == nil || err != nil || s.show.MatchString(line) {
			fmt.Print(line)
		}
	}
	switch {
	case s.denied && err == nil:
		return errors.New("the command succeeded and must be denied")
	case !s.denied && err != nil:
		return err
	case !strings.Contains(output, s.want):
		return fmt.Errorf("the output does not contain %q", s.want)
	}
	return nil
}

// shell runs a command line and returns what it wrote to standard output and standard
// error.
func shell(ctx context.Context, box *sandbox.Sandbox, line string) (string, error) {
	command := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", line)
	command.Env = append(os.Environ(), box.KubectlEnv()...)
	output, err := command.CombinedOutput()
	return string(output), err
}
