package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Without a terminal, a progress is a few lines without carriage returns: a line per
// tenth of a known total, or per 10 seconds.
func TestProgress_NoTerminal(t *testing.T) {
	cases := map[string]struct {
		steps int
		step  time.Duration
		total int
		lines []string
	}{
		"fast":          {steps: 1500, step: time.Millisecond, total: 1500},
		"tenths":        {steps: 1500, step: 10 * time.Millisecond, total: 1500, lines: []string{"200 of 1500 …", "350 of 1500 …", "500 of 1500 …", "650 of 1500 …", "800 of 1500 …", "950 of 1500 …", "1100 of 1500 …", "1250 of 1500 …", "1400 of 1500 …", "1500 of 1500 in 15s"}},
		"slow":          {steps: 4, step: 5 * time.Second, total: 100, lines: []string{"2 of 100 …", "4 of 100 …", "4 of 100 in 20s"}},
		"unknown total": {steps: 25, step: time.Second, lines: []string{"10 of 0 …", "20 of 0 …", "25 of 0 in 25s"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			p := newProgress(&out, func() time.Time { return now })
			for n := range tc.steps {
				now = now.Add(tc.step)
				p.step(n+1, tc.total, fmt.Sprintf("%d of %d", n+1, tc.total))
			}
			p.end(fmt.Sprintf("%d of %d", tc.steps, tc.total))
			want := strings.Join(append(tc.lines, ""), "\n")
			if out.String() != want {
				t.Errorf("progress:\n%swant:\n%s", out.String(), want)
			}
		})
	}
}

// On a terminal, each step overwrites one line.
func TestProgress_Terminal(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newProgress(&out, func() time.Time { return now })
	p.terminal = true
	for n := range 3 {
		now = now.Add(time.Second)
		p.step(n, 0, fmt.Sprintf("read %d", n))
	}
	p.end("read 2")
	if want := "\rread 1 …\rread 2 …\rread 2 in 3s\n"; out.String() != want {
		t.Errorf("progress %q, want %q", out.String(), want)
	}
}
