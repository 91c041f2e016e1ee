package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

// figure is one line of the table and one element of the JSON list. Ratios are 0 where there is nothing to compare with, clients where
// calls do not wait for each other.
type figure struct {
	Name           string  `json:"name"`
	Clients        int     `json:"clients"`
	N              int     `json:"n"` // operations, of all rounds
	P50            float64 `json:"p50_ms"`
	P99            float64 `json:"p99_ms"`
	PerSecond      float64 `json:"per_second"`
	RatioP50       float64 `json:"ratio_p50"`
	RatioPerSecond float64 `json:"ratio_per_second"`

	CPU    map[string]float64 `json:"cpu_ms_per_op,omitempty"` // process ->
	Others float64            `json:"others_cpu_percent,omitempty"`

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
	for process := range samples[0].cpu.perOp {
		f.CPU[process] = over(func(i int) float64 { return ms(samples[i].cpu.perOp[process]) })
	}
	if base != nil {
		f.RatioP50 = over(func(i int) float64 { return float64(samples[i].p50) / float64(base[i].p50) })
		f.RatioPerSecond = over(func(i int) float64 { return samples[i].perSecond / base[i].perSecond })
	}
	return f
}

func (f figure) isCore() bool { return f.AllocsPerOp != nil || f.BytesPerRange > 0 }

func printTable(w io.Writer, figures []figure) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	inHeader := map[bool]bool{}
	for _, f := range figures {
		core := f.isCore()
		switch first := !inHeader[core]; {
		case first && core:
			t.Flush()
			fmt.Fprintf(t, "\ncalls\tp50 µs\tp99 µs\tallocations\tbytes per range\t  name\n")
		case first:
			fmt.Fprintln(t, "clients\tcalls\tp50 ms\tp99 ms\tper second\t× p50\t× per second\tapiserver\tetcd\tmanager\tbench\tothers\t  name")
		}
		inHeader[core] = true
		if core {
			allocations, bytes := "", ""
			if f.AllocsPerOp != nil {
				allocations = strconv.FormatInt(*f.AllocsPerOp, 10)
			}
			if f.BytesPerRange > 0 {
				bytes = fmt.Sprintf("%.0f", f.BytesPerRange)
			}
			fmt.Fprintf(t, "%d\t%.2f\t%.2f\t%s\t%s\t  %s\n", f.N, 1000*f.P50, 1000*f.P99, allocations, bytes, f.Name)
			continue
		}
		fmt.Fprintf(t, "%d\t%d\t%.2f\t%.2f\t%.0f\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f %%\t  %s\n", f.Clients, f.N, f.P50, f.P99, f.PerSecond,
			ratio(f.RatioP50), ratio(f.RatioPerSecond),
			f.CPU["kube-apiserver"], f.CPU["etcd"], f.CPU["manager-1"], f.CPU["bench"], f.Others, f.Name)
	}
	t.Flush()
}

func ratio(r float64) string {
	if r == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", r)
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
