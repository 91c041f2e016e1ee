// Command demo shows the main features of Butler IPAM on a sandbox of its own. It creates a pool and allocations, whose create response
// contains the addresses, and shows a denied allocation and an overview. A shell executes every line that begins with $ unchanged, with the sandbox's kubectl.
// The demo fails if a command does not show the expected result.
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
	// await is a command that waits, unseen, for what the step is to show.
	await   string
	command string
	// show selects the lines of an answer to print; nil prints all.
	show *regexp.Regexp
	// refused says that the command must fail.
	refused bool
	// want must occur in what the command wrote.
	want string
}

// answer selects the part of an IPAllocation that the create has filled in.
var answer = regexp.MustCompile(`^(spec:|  count:|  pinnedRange:|    (start|end)Address:)`)

var steps = []step{
	{
		title:   "a pool",
		command: "kubectl apply -f config/samples/networkpool.yaml",
		want:    "created",
	},
	{
		title:   "the answer to a create holds the addresses; the count is the pool's default for nodes",
		command: "kubectl create -f config/samples/ipallocation-nodes.yaml -o yaml",
		show:    answer,
		want:    "startAddress: 10.40.0.64",
	},
	{
		title:   "eight addresses for load balancers",
		command: "kubectl create -f config/samples/ipallocation-lb.yaml -o yaml",
		show:    answer,
		want:    "startAddress: 10.40.0.69",
	},
	{
		title:   "a cluster that brings its addresses along",
		command: "kubectl create -f config/samples/ipallocation-pinned.yaml -o yaml",
		show:    answer,
		want:    "startAddress: 10.40.0.100",
	},
	{
		title:   "more than the pool has is refused in the same call",
		command: "sed 's/name: my-cluster-lb/name: too-many/; s/count: 8/count: 200/' config/samples/ipallocation-lb.yaml | kubectl create -f -",
		refused: true,
		want:    "200",
	},
	{
		title:   "who has what",
		await:   "kubectl wait --for=condition=Ready ipa --all --timeout=10s && kubectl wait --for=jsonpath='{.status.allocatedIPs}'=23 np/vlan40-pool --timeout=10s",
		command: "kubectl get ipa,np",
		want:    "legacy-cluster-nodes",
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
	fmt.Printf("etcd, kube-apiserver and one manager serve after %.1f s (answers below are trimmed to what the create filled in)\n", time.Since(began).Seconds())

	for _, step := range steps {
		if err := step.run(ctx, s); err != nil {
			return fmt.Errorf("demo: %s: %w", step.title, err)
		}
	}
	fmt.Printf("\nThree allocations had their addresses in the answer to their create; the fourth was refused with the reason.\n"+
		"Done in %.1f s, start of the cluster included. `make sandbox` keeps one running for you to try.\n", time.Since(began).Seconds())
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
	case s.refused && err == nil:
		return errors.New("the command succeeded and should have been refused")
	case !s.refused && err != nil:
		return err
	case !strings.Contains(output, s.want):
		return fmt.Errorf("the output does not hold %q", s.want)
	}
	return nil
}

// shell runs a command line and returns what it wrote to standard output and standard error.
func shell(ctx context.Context, box *sandbox.Sandbox, line string) (string, error) {
	command := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", line)
	command.Env = append(os.Environ(), box.KubectlEnv()...)
	output, err := command.CombinedOutput()
	return string(output), err
}
