// Command kubectl-ipam shows operators who owns which address: pools, an address map, free ranges, owners, claims, how many claims still fit, what a change
// of a pool would do, and defects. It also imports and exports the addresses of a pool. kubectl finds it as "kubectl ipam". See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set when the binary is built.
var version = "dev"

// Exit codes, as those of kubectl diff.
const (
	exitFindings = 1 // commands with findings: findings; other commands: no answer
	exitFailed   = 2 // commands with findings: the command could not look
)

// annotationFindings marks the commands that have findings.
const annotationFindings = "findings"

// findings is the error of a command that has answered, with findings.
type findings struct{}

func (findings) Error() string { return "findings" }

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	cmd, err := newRoot(streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}).ExecuteContextC(ctx)
	cancel()
	if err != nil && !errors.Is(err, findings{}) {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	os.Exit(exitCode(cmd, err))
}

// exitCode returns the exit code of the process after a command.
func exitCode(cmd *cobra.Command, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, findings{}), cmd.Annotations[annotationFindings] == "":
		return exitFindings
	}
	return exitFailed
}
