package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
)

// table is where a figure is printed: those of one table have the same columns.
type table int

const (
	answerTable table = iota
	outageTable
	memoryTable
	coreTable
)

// figure is one line of a table and one element of the JSON list. Ratios are 0 where
// there is nothing to compare with, clients where calls do not wait for each other.
type figure struct {
	table          table
	Name           string  `json:"name"`
	Clients        int     `json:"clients"`
	N              int     `json:"n"` // operations, of all rounds; outages; allocations stored
	P50            float64 `json:"p50_ms"`
	P99            float64 `json:"p99_ms"`
	PerSecond      float64 `json:"per_second"`
	MoreP50        float64 `json:"more_p50_ms"` // than what it is compared with
	RatioP50       float64 `json:"ratio_p50"`
	RatioPerSecond float64 `json:"ratio_per_second"`

	CPU    map[string]float64 `json:"cpu_ms_per_op,omitempty"` // process ->
	Others float64            `json:"others_cpu_percent,omitempty"`
	// Counters of the API server, for each operation: allocated bytes of heap, and
	// requests that change a stored object.
	Allocated float64 `json:"apiserver_allocated_bytes_per_op,omitempty"`
	Writes    float64 `json:"api_writes_per_op,omitempty"`

	// Of outages:
	Failed int `json:"failed,omitempty"` // creates, of all rounds

	// Of a manager with allocations, for each of them, beyond what it has without any:
	HeapBytes     float64 `json:"heap_bytes,omitempty"`     // live
	ResidentBytes float64 `json:"resident_bytes,omitempty"` // of the process
	PeakBytes     float64 `json:"peak_bytes,omitempty"`     // resident, while it started

	// Of the core:
	AllocsPerOp   *int64  `json:"allocs_per_op,omitempty"`
	BytesPerRange float64 `json:"bytes_per_range,omitempty"`
}

// figureOf is the medians over the rounds. base is the baseline's, in the same order.
func figureOf(clients int, samples, base []sample) figure {
	f := figure{Name: samples[0].name, Clients: clients, CPU: map[string]float64{}}
	over := func(value func(i int) float64) float64 {
		values := make([]float64, len(samples))
		for i := range samples {
			values[i] = value(i)
		}
		return median(values)
	}
	for _, s := range samples {
		f.N += s.n
	}
	f.P50 = over(func(i int) float64 { return ms(samples[i].p50) })
	f.P99 = over(func(i int) float64 { return ms(samples[i].p99) })
	f.PerSecond = over(func(i int) float64 { return samples[i].perSecond })
	f.Others = over(func(i int) float64 { return 100 * samples[i].cpu.others })
	f.Allocated = over(func(i int) float64 { return samples[i].counters.allocated })
	f.Writes = over(func(i int) float64 { return samples[i].counters.writes })
	for process := range samples[0].cpu.perOp {
		f.CPU[process] = over(func(i int) float64 { return ms(samples[i].cpu.perOp[process]) })
	}
	if base != nil {
		f.MoreP50 = over(func(i int) float64 { return ms(samples[i].p50 - base[i].p50) })
		f.RatioP50 = over(func(i int) float64 { return float64(samples[i].p50) / float64(base[i].p50) })
		f.RatioPerSecond = over(func(i int) float64 { return samples[i].perSecond / base[i].perSecond })
	}
	return f
}

func printTable(w io.Writer, figures []figure) {
	for _, t := range []struct {
		table   table
		heading string
		row     func(figure) []string
	}{
		{answerTable, "clients,calls,p50 ms,p99 ms,per second,+ p50 ms,× p50,× per second,CPU: apiserver,etcd,manager,the three,bench,others,apiserver KB,API writes,  name", figure.answerRow},
		{outageTable, "clients,rounds,median ms,largest ms,failed creates,others,  name", figure.outageRow},
		{memoryTable, "stored,bytes of each: live heap,resident,resident at start,  name", figure.memoryRow},
		{coreTable, "calls,p50 µs,p99 µs,allocations,bytes per range,  name", figure.coreRow},
	} {
		var rows [][]string
		for _, f := range figures {
			if f.table == t.table {
				rows = append(rows, t.row(f))
			}
		}
		printRows(w, t.heading, rows)
	}
}

func printRows(w io.Writer, heading string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, strings.ReplaceAll(heading, ",", "\t"))
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	fmt.Fprintln(t)
	t.Flush()
}

func (f figure) answerRow() []string {
	row := []string{strconv.Itoa(f.Clients), strconv.Itoa(f.N), decimals(f.P50), decimals(f.P99), fmt.Sprintf("%.0f", f.PerSecond),
		unlessZero(f.MoreP50), unlessZero(f.RatioP50), unlessZero(f.RatioPerSecond)}
	for _, process := range servers {
		row = append(row, unlessZero(f.CPU[process]))
	}
	row = append(row, unlessZero(f.serverCPU()), unlessZero(f.CPU["bench"]))
	allocated := ""
	if f.Allocated > 0 {
		allocated = fmt.Sprintf("%.0f", f.Allocated/1000)
	}
	return append(row, fmt.Sprintf("%.0f %%", f.Others), allocated, unlessZero(f.Writes), "  "+f.Name)
}

// servers are the processes that do the work of a create.
var servers = []string{"kube-apiserver", "etcd", managerProcess}

// managerProcess names the only manager.
const managerProcess = "manager-1"

// serverCPU returns the CPU time of the servers, in milliseconds for each operation.
func (f figure) serverCPU() (all float64) {
	for _, process := range servers {
		all += f.CPU[process]
	}
	return all
}

func (f figure) outageRow() []string {
	return []string{strconv.Itoa(f.Clients), strconv.Itoa(f.N), decimals(f.P50), decimals(f.P99), strconv.Itoa(f.Failed), fmt.Sprintf("%.0f %%", f.Others), "  " + f.Name}
}

func (f figure) memoryRow() []string {
	return []string{strconv.Itoa(f.N), fmt.Sprintf("%.0f", f.HeapBytes), fmt.Sprintf("%.0f", f.ResidentBytes), fmt.Sprintf("%.0f", f.PeakBytes), "  " + f.Name}
}

func (f figure) coreRow() []string {
	allocations, bytes := "", ""
	if f.AllocsPerOp != nil {
		allocations = strconv.FormatInt(*f.AllocsPerOp, 10)
	}
	if f.BytesPerRange > 0 {
		bytes = fmt.Sprintf("%.0f", f.BytesPerRange)
	}
	return []string{strconv.Itoa(f.N), decimals(1000 * f.P50), decimals(1000 * f.P99), allocations, bytes, "  " + f.Name}
}

func decimals(v float64) string { return fmt.Sprintf("%.2f", v) }

func unlessZero(v float64) string {
	if v == 0 {
		return ""
	}
	return decimals(v)
}

func writeJSON(path string, figures []figure) error {
	text, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
