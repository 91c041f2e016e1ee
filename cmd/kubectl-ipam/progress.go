package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
)

// progressInterval is the time between two lines of a progress on a stream that is not a
// terminal, such as the log of a CI job.
const progressInterval = 10 * time.Second

// progress reports the progress of an operation that takes longer than cluster.Patience.
// On a terminal the report is one line, which each step overwrites. On another stream a
// step is a line, and is printed if one of these holds:
//
//   - the last line is at least progressInterval old
//   - another tenth of the total is done
type progress struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	begun    time.Time
	printed  time.Time // time of the last line
	done     int       // in the last line
	reported bool
}

func newProgress(out io.Writer, now func() time.Time) *progress {
	file, ok := out.(*os.File)
	return &progress{out: out, terminal: ok && term.IsTerminal(int(file.Fd())), now: now, begun: now(), printed: now()}
}

// step reports a step. total is 0 if it is not known. The caller serializes the calls.
func (p *progress) step(done, total int, text string) {
	now := p.now()
	switch {
	case now.Sub(p.begun) < cluster.Patience:
	case p.terminal:
		p.reported = true
		_, _ = fmt.Fprintf(p.out, "\r%s …", text)
	case now.Sub(p.printed) >= progressInterval, total > 0 && (done-p.done)*10 >= total:
		p.reported, p.printed, p.done = true, now, done
		_, _ = fmt.Fprintf(p.out, "%s …\n", text)
	}
}

// end reports the end of the operation, if a step was reported.
func (p *progress) end(text string) {
	if !p.reported {
		return
	}
	start := ""
	if p.terminal {
		start = "\r"
	}
	_, _ = fmt.Fprintf(p.out, "%s%s in %s\n", start, text, p.now().Sub(p.begun).Round(100*time.Millisecond))
}
