// Command kubectl-ipam shows pools, address maps, free ranges, owners of addresses,
// claims, the number of claims that still fit, the effect of a change of a pool, and
// defects. It also imports and exports the addresses of a pool. kubectl runs the command
// for "kubectl ipam". See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

// version is set by the linker.
var version = "dev"

// Exit codes. Commands with findings (annotationFindings) use the exit codes of kubectl
// diff.
const (
	exitFindings = 1 // commands with findings: there are findings; other commands: an error
	exitFailed   = 2 // commands with findings: an error
)

// annotationFindings marks the commands whose exit code reports findings.
const annotationFindings = "findings"

// findings is the error of a command that has printed findings.
type findings struct{}

func (findings) Error() string { return "findings" }

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	cmd, err := newRoot(streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}).ExecuteContextC(ctx)
	cancel()
	if err != nil && !errors.Is(err, findings{}) {
		fmt.Fprintln(safetext.Writer{Out: os.Stderr}, "error:", cluster.ExplainUnreachable(err))
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
