package historyrecord

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/state"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Logger is the name of the logger of the manager that logs Records.
const Logger = "history"

// Events of a Record.
const (
	EventAllocated = "Allocated"
	EventReleased  = "Released"
)

// Record is one allocation or one release of a claim. The manager logs a Record as one
// line.
type Record struct {
	Event         string    // EventAllocated or EventReleased: the message of the line
	Time          time.Time // of the event
	Kind          string
	Namespace     string // "" for a cluster-scoped claim
	Name          string
	UID           string
	Pool          string // kind, namespace and name of the pool, separated by slashes
	RoutingDomain string
	Ranges        []allocator.Range
	Tenant        string // namespace/name; "" for none
	Origin        string // value of butlerv1.AnnotationOrigin
}

// NewRecord returns the record of an event of a stored claim in a routing domain.
func NewRecord(event string, at time.Time, c state.Claim, domain string, o metav1.Object) Record {
	r := Record{
		Event: event, Time: at, Kind: kinds.NameOf(c.Key), Namespace: c.Key.Namespace, Name: c.Key.Name, UID: c.UID, RoutingDomain: domain, Ranges: c.Ranges,
		Tenant: kinds.Of(o).Describe(o).Tenant, Origin: o.GetAnnotations()[butlerv1.AnnotationOrigin],
	}
	if c.Pool != (state.Key{}) {
		r.Pool = PoolName(c.Pool)
	}
	return r
}

// PoolName returns the value of Record.Pool for a pool.
func PoolName(k state.Key) string {
	name := k.Name
	if k.Namespace != "" {
		name = k.Namespace + "/" + name
	}
	return kinds.NameOf(k) + "/" + name
}

// line is the JSON of a Record, with the fields of the log line.
type line struct {
	Logger        string   `json:"logger"`
	Event         string   `json:"msg"`
	At            string   `json:"at"`
	Kind          string   `json:"kind"`
	Namespace     string   `json:"namespace"`
	Name          string   `json:"name"`
	UID           string   `json:"uid"`
	Pool          string   `json:"pool"`
	RoutingDomain string   `json:"routingDomain"`
	Ranges        []string `json:"ranges"`
	Tenant        string   `json:"tenant"`
	Origin        string   `json:"origin"`
}

// Fields returns the fields of the log line, as names and values in turn.
func (r Record) Fields() []any {
	ranges := make([]string, len(r.Ranges))
	for n, text := range r.Ranges {
		ranges[n] = text.String()
	}
	return []any{
		"at", r.Time.UTC().Format(time.RFC3339Nano), "kind", r.Kind, "namespace", r.Namespace, "name", r.Name, "uid", r.UID, "pool", r.Pool,
		"routingDomain", r.RoutingDomain, "ranges", ranges, "tenant", r.Tenant, "origin", r.Origin,
	}
}

// appendLine appends the record as a line of JSON, with the fields of the log line.
func (r Record) appendLine(lines []byte) []byte {
	l := line{
		Logger: Logger, Event: r.Event, At: r.Time.UTC().Format(time.RFC3339Nano), Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID, Pool: r.Pool,
		RoutingDomain: r.RoutingDomain, Ranges: []string{}, Tenant: r.Tenant, Origin: r.Origin,
	}
	for _, owned := range r.Ranges {
		l.Ranges = append(l.Ranges, owned.String())
	}
	text, _ := json.Marshal(l) // strings only: never fails
	return append(append(lines, text...), '\n')
}

// History contains the records of a log or of AllocationHistories in order of time,
// without repeated records.
type History []Record

// maxLine bounds the length of a log line, in bytes. ReadLog ignores longer lines: every
// Record is shorter.
const maxLine = 1 << 20

// ReadLog reads the records of a log of the manager in JSON. ReadLog ignores lines
// without a record, and text before the JSON of a line, such as the name of a pod.
func ReadLog(log io.Reader) (History, error) {
	all, err := readRecords(log)
	return NewHistory(all), err
}

func readRecords(log io.Reader) (all []Record, err error) {
	lines := bufio.NewReaderSize(log, maxLine)
	for {
		text, tooLong, err := lines.ReadLine()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		record, found, err := parseLine(text)
		for tooLong && err == nil {
			found = false
			_, tooLong, err = lines.ReadLine()
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if found {
			all = append(all, record)
		}
	}
}

// parseLine returns the record of a line. found is false for a line without a record. A
// record with an invalid time or range is an error.
func parseLine(text []byte) (r Record, found bool, err error) {
	begin := bytes.IndexByte(text, '{')
	if begin < 0 || !bytes.Contains(text, []byte(`"`+Logger+`"`)) {
		return r, false, nil
	}
	var l line
	if json.Unmarshal(text[begin:], &l) != nil || l.Logger != Logger || l.Event != EventAllocated && l.Event != EventReleased {
		return r, false, nil
	}
	fail := func(err error) error { return fmt.Errorf("line of %s %s/%s: %w", l.Kind, l.Namespace, l.Name, err) }
	r = Record{
		Event: l.Event, Kind: l.Kind, Namespace: l.Namespace, Name: l.Name, UID: l.UID, Pool: l.Pool, RoutingDomain: l.RoutingDomain,
		Tenant: l.Tenant, Origin: l.Origin,
	}
	if r.Time, err = time.Parse(time.RFC3339Nano, l.At); err != nil {
		return r, false, fail(err)
	}
	for _, text := range l.Ranges {
		parsed, err := allocator.ParseRange(text)
		if err != nil {
			return r, false, fail(err)
		}
		r.Ranges = append(r.Ranges, parsed)
	}
	return r, true, nil
}

// NewHistory sorts records by time and drops repetitions. Consecutive records of a claim
// with equal event and ranges are repetitions:
//
//   - of repeated allocations, the first counts
//   - of repeated releases, the last counts: a release is logged again after a failed
//     removal of the finalizer
func NewHistory(all []Record) (h History) {
	slices.SortStableFunc(all, func(x, y Record) int { return x.Time.Compare(y.Time) })
	last := map[string]int{} // UID -> index in h of the last record of the claim
	for _, r := range all {
		n, repeats := last[r.UID]
		repeats = repeats && h[n].Event == r.Event && slices.Equal(h[n].Ranges, r.Ranges)
		switch {
		case !repeats:
			last[r.UID] = len(h)
			h = append(h, r)
		case r.Event == EventReleased:
			h[n].Time = r.Time
		}
	}
	slices.SortStableFunc(h, func(x, y Record) int { return x.Time.Compare(y.Time) })
	return h
}

// Tenure is the time during which a claim owned its ranges.
type Tenure struct {
	Record           // record of the allocation; of the release if the history lacks the allocation
	From   time.Time // zero if the history lacks the allocation
	Until  time.Time // zero if the history lacks the release
}

// Period is the time from Begin, included, to End, excluded. The zero Period is
// unlimited.
type Period struct{ Begin, End time.Time }

// layouts are the layouts of a time without a time zone, with the length of the period
// that such a time names.
var layouts = []struct {
	layout string
	length time.Duration
}{{"2006-01-02 15:04:05", time.Second}, {"2006-01-02T15:04:05", time.Second}, {"2006-01-02 15:04", time.Minute}, {"2006-01-02T15:04", time.Minute}}

// ParsePeriod returns the period that a text names. A question with the printed begin or
// end of a tenure, which is a whole second, has to find the tenure.
//
//	2026-11-24T15:00:00Z         a second
//	2026-11-24T15:00:00.123Z     a nanosecond
//	2026-11-24 15:00[:00]        a minute or a second of UTC, as the times in outputs
//	90m, 1h                      the second that was this long before now
func ParsePeriod(text string, now time.Time) (Period, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		at := now.Add(-ago).UTC().Truncate(time.Second)
		return Period{Begin: at, End: at.Add(time.Second)}, nil
	}
	for _, l := range layouts {
		if at, err := time.Parse(l.layout, text); err == nil && !strings.ContainsAny(text, ".,") {
			return Period{Begin: at, End: at.Add(l.length)}, nil
		}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return Period{}, err
	}
	length := time.Second
	if strings.ContainsAny(text, ".,") {
		length = time.Nanosecond
	}
	return Period{Begin: at, End: at.Add(length)}, nil
}

// Owners lists the tenures of claims that owned an address of a range in a routing domain
// during a period or a part of it, by begin.
func (h History) Owners(domain string, r allocator.Range, during Period) (list []Tenure) {
	open := map[string]int{} // UID -> index of the tenure in list
	for _, record := range h {
		if record.RoutingDomain != domain || !slices.ContainsFunc(record.Ranges, r.Overlaps) {
			if n, ok := open[record.UID]; ok { // the claim now owns other ranges
				list[n].Until = record.Time
				delete(open, record.UID)
			}
			continue
		}
		n, ok := open[record.UID]
		switch {
		case record.Event == EventAllocated && !ok:
			open[record.UID] = len(list)
			list = append(list, Tenure{Record: record, From: record.Time})
		case record.Event == EventReleased && ok:
			list[n].Until = record.Time
			delete(open, record.UID)
		case record.Event == EventReleased:
			list = append(list, Tenure{Record: record, Until: record.Time})
		}
	}
	if during != (Period{}) {
		list = slices.DeleteFunc(list, func(t Tenure) bool {
			return !t.From.Before(during.End) || !t.Until.IsZero() && !during.Begin.Before(t.Until)
		})
	}
	slices.SortStableFunc(list, func(x, y Tenure) int { return cmp.Or(x.From.Compare(y.From), x.Until.Compare(y.Until)) })
	return list
}

// Domains lists the routing domains of the records.
func (h History) Domains() (domains []string) {
	for _, r := range h {
		domains = append(domains, r.RoutingDomain)
	}
	slices.Sort(domains)
	return slices.Compact(domains)
}
