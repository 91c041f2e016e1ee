package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"

	"butlerlabs.dev/ipam/test/sandbox"
)

// footprint is the memory of a process, in bytes.
type footprint struct {
	heap     int64 // live
	resident int64
	peak     int64 // resident, since its start
}

// settle is how long the resident memory must stay the same to count: the runtime gives
// back bit by bit what it has collected.
const settle = 3 * time.Second

// footprintOf collects what a manager's heap holds no more, and reads its memory when
// that has settled.
func footprintOf(ctx context.Context, m *sandbox.Manager) (f footprint, err error) {
	for range 2 { // what finalizers let go of is collected by the second
		if f.heap, err = liveHeap(ctx, m); err != nil {
			return f, err
		}
	}
	since := time.Now()
	err = await(ctx, func(context.Context) error {
		resident, peak, err := residentMemory(m.Pid())
		if err != nil {
			return err
		}
		if differ := resident - f.resident; differ*100 > f.resident || -differ*100 > f.resident {
			f.resident, since = resident, time.Now()
		}
		f.peak = peak
		if time.Since(since) < settle {
			return fmt.Errorf("%s has %d bytes, and other numbers before", m.Name(), resident)
		}
		return nil
	})
	return f, err
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// liveHeap has a manager collect garbage, and says how many bytes remain.
func liveHeap(ctx context.Context, m *sandbox.Manager) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.ProfileAddress+"/debug/pprof/heap?gc=1&debug=1", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	found := heapAlloc.FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("the heap profile of %s names no HeapAlloc", m.Name())
	}
	return strconv.ParseInt(string(found[1]), 10, 64)
}

var memoryLine = regexp.MustCompile(`(?m)^(VmHWM|VmRSS):\s+(\d+) kB$`)

// residentMemory of a process, now and at most so far.
func residentMemory(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, line := range memoryLine.FindAllSubmatch(status, -1) {
		kib, err := strconv.ParseInt(string(line[2]), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if string(line[1]) == "VmHWM" {
			peak = 1024 * kib
		} else {
			now = 1024 * kib
		}
	}
	return now, peak, nil
}
