package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// limit is what a figure is expected to keep.
type limit struct {
	name    string
	clients int
	what    string
	value   func(figure) float64
	atLeast bool // else at most
	limit   float64
	aim     float64 // 0 for none
}

func ratioP50(f figure) float64       { return f.RatioP50 }
func moreP50(f figure) float64        { return f.MoreP50 }
func largest(f figure) float64        { return f.P99 }
func ratioPerSecond(f figure) float64 { return f.RatioPerSecond }
func p50(f figure) float64            { return f.P50 }
func perSecond(f figure) float64      { return f.PerSecond }
func p99(f figure) float64            { return f.P99 }
func p50Micros(f figure) float64      { return 1000 * f.P50 }
func allocations(f figure) float64    { return float64(*f.AllocsPerOp) }
func bytesPerRange(f figure) float64  { return f.BytesPerRange }
func apiWrites(f figure) float64      { return f.Writes }
func apiServerKB(f figure) float64    { return f.Allocated / 1000 }

// pausedCreate names the creates of a kind with a pause after each.
func pausedCreate(kind string) string {
	return fmt.Sprintf("%s create, %d ms apart", kind, apart/time.Millisecond)
}

var limits = slices.Concat(peerLimits(), []limit{
	{name: "IPAllocation create", clients: 1, what: "p50 ratio", value: ratioP50, limit: 1.6, aim: 1.4},
	{name: "ProxyVIP create", clients: 1, what: "p50 ratio", value: ratioP50, limit: 1.6, aim: 1.4},
	{name: pausedCreate("IPAllocation"), clients: 1, what: "p50 ratio", value: ratioP50, limit: 1.4, aim: 1.2},
	{name: pausedCreate("ProxyVIP"), clients: 1, what: "p50 ratio", value: ratioP50, limit: 1.4, aim: 1.2},
	{name: "IPAllocation create", clients: 1, what: "API writes", value: apiWrites, limit: 2.3},
	{name: "ProxyVIP create", clients: 1, what: "API writes", value: apiWrites, limit: 2.3},
	{name: pausedCreate("IPAllocation"), clients: 1, what: "API writes", value: apiWrites, limit: 2.5},
	{name: pausedCreate("ProxyVIP"), clients: 1, what: "API writes", value: apiWrites, limit: 2.5},
	{name: "IPAllocation create", clients: 1, what: "apiserver KB", value: apiServerKB, limit: 1050, aim: 750},
	{name: "IPAllocation create, statuses written", clients: 64, what: "per second ratio", value: ratioPerSecond, limit: 0.4, atLeast: true},
	{name: withReplicas(replicas), clients: crowd, what: "per second ratio", value: ratioPerSecond, limit: 0.6, atLeast: true},
	{name: throughFollower, clients: 1, what: "more p50 ms", value: moreP50, limit: 1},
	{name: outages[0].name(), clients: crowd, what: "largest ms", value: largest, limit: 500},
	{name: outages[1].name(), clients: crowd, what: "largest ms", value: largest, limit: 3000},
	{name: outages[2].name(), clients: crowd, what: "largest ms", value: largest, limit: 12_000},
	{name: stocks[2].fenceToServing(), clients: takeOverClients, what: "largest ms", value: largest, limit: 1000},
	{name: stocks[3].fenceToServing(), clients: takeOverClients, what: "largest ms", value: largest, limit: 1000},
	{name: alloc.lagName(), what: "p99 ms", value: p99, limit: 1000},
	{name: ipClaim.lagName(), what: "p99 ms", value: p99, limit: 1000},
	{name: addressClaim.lagName(), what: "p99 ms", value: p99, limit: 1000},
	{name: ipClaim.part(toResponse), clients: 1, what: "p50 ms", value: p50, limit: 8},
	{name: addressClaim.part(toResponse), clients: 1, what: "p50 ms", value: p50, limit: 8},
	{name: ipClaim.part(toStatus), clients: 64, what: "per second", value: perSecond, limit: 200, atLeast: true},
	{name: addressClaim.part(toStatus), clients: 64, what: "per second", value: perSecond, limit: 200, atLeast: true},
	{name: "core allocate, " + scenes[1].name, what: "p50 µs", value: p50Micros, limit: 2},
	{name: "core release, " + scenes[1].name, what: "p50 µs", value: p50Micros, limit: 2},
	{name: "core allocate, " + scenes[1].name, what: "heap allocations", value: allocations, limit: 0},
	{name: "core release, " + scenes[1].name, what: "heap allocations", value: allocations, limit: 0},
	{name: "core allocate, " + scenes[2].name, what: "p50 µs", value: p50Micros, limit: 10},
	{name: "core release, " + scenes[2].name, what: "p50 µs", value: p50Micros, limit: 10},
	{name: "core rebuild, " + scenes[2].name, what: "bytes per range", value: bytesPerRange, limit: 150},
})

// printLimits says of each limit whose figure was measured what came of it.
func printLimits(w io.Writer, figures []figure) {
	heading := "limits:\n"
	for _, l := range limits {
		for _, f := range figures {
			if f.Name != l.name || f.Clients != l.clients {
				continue
			}
			fmt.Fprintf(w, "%s  %s\n", heading, l.verdict(f))
			heading = ""
		}
	}
}

func (l limit) verdict(f figure) string {
	where := l.name
	if l.clients > 0 {
		where += fmt.Sprintf(", %d client(s)", l.clients)
	}
	value, verdict, bound := l.value(f), "kept", "at most"
	if l.atLeast {
		bound = "at least"
	}
	if l.atLeast && value < l.limit || !l.atLeast && value > l.limit {
		verdict = "MISSED"
	}
	aim := ""
	if l.aim > 0 {
		aim = fmt.Sprintf(", aim %g", l.aim)
	}
	return fmt.Sprintf("%s: %s %.3g (%s %g%s): %s", where, l.what, value, bound, l.limit, aim, verdict)
}
