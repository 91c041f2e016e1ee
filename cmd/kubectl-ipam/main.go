// Command kubectl-ipam shows operators who owns which address: pools, an address map, free ranges, owners, claims, how many claims still fit, and what a change
// of a pool would do. kubectl finds it as "kubectl ipam". See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set when the binary is built.
var version = "dev"

// Exit codes, as those of kubectl diff.
const (
	exitFindings = 1 // check, fit and plan: findings; other commands: no answer
	exitFailed   = 2 // check, fit and plan: the command could not look
)

// findings is the error of a command that has answered, with findings.
type findings struct{}

func (findings) Error() string { return "findings" }

// failure is the error of a command with findings that could not look.
type failure struct{ error }

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newRoot(streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}).ExecuteContext(ctx)
	cancel()
	os.Exit(exitCode(err))
}

// exitCode prints an error, and returns the exit code of the process.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, findings{}):
		return exitFindings
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	if errors.As(err, &failure{}) {
		return exitFailed
	}
	return exitFindings
}
