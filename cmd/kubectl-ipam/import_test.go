package main

import (
	"os/exec"
	"testing"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
)

// A POSIX shell passes a text of QuoteShell as one unchanged argument.
func TestQuoteShell(t *testing.T) {
	for _, text := range []string{"address;tenant=ranges", "Team name=tenant", "# a=ranges", "it's", `"$HOME" \ !x`, "`id`", "'", "a|b & c > d *"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+addressfile.QuoteShell(text)).Output()
		if err != nil || string(out) != text {
			t.Errorf("%s: the shell passes %q, want %q: %v", addressfile.QuoteShell(text), out, text, err)
		}
	}
}
