package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
)

// requestCount matches a sample of the API server's counter of requests.
var requestCount = regexp.MustCompile(`^apiserver_request_total\{([^}]*)\} (\S+)$`)

// isWrite matches the labels of requests that change a stored object. A review of a token
// or of a right is a POST that stores nothing; a dry run has its own label.
var (
	isWrite  = regexp.MustCompile(`verb="(POST|PUT|PATCH|APPLY|DELETE)"`)
	isReview = regexp.MustCompile(`group="auth(entication|orization)\.k8s\.io"|dry_run="All"`)
)

// apiServerCounters are counters of the API server since its start. Differences between
// two readings do not depend on the speed of the machine.
type apiServerCounters struct {
	allocated float64 // bytes of heap
	writes    float64 // requests that change a stored object
}

// readCounters reads the counters of the API server.
func (b *bench) readCounters(ctx context.Context) (c apiServerCounters, err error) {
	metrics, err := b.raw.Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return c, err
	}
	const heap = "go_memstats_alloc_bytes_total "
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if value, found := bytes.CutPrefix(lines.Bytes(), []byte(heap)); found {
			if c.allocated, err = strconv.ParseFloat(string(value), 64); err != nil {
				return c, fmt.Errorf("metric %s: %w", heap, err)
			}
			continue
		}
		parts := requestCount.FindStringSubmatch(line)
		if parts == nil || !isWrite.MatchString(parts[1]) || isReview.MatchString(parts[1]) {
			continue
		}
		n, err := strconv.ParseFloat(parts[2], 64)
		if err != nil {
			return c, fmt.Errorf("metric %s: %w", line, err)
		}
		c.writes += n
	}
	if c.allocated == 0 || c.writes == 0 {
		return c, fmt.Errorf("the API server's metrics lack %s or apiserver_request_total", heap)
	}
	return c, lines.Err()
}
