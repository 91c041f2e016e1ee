package alerts

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const files = "../../../charts/butler-ipam/files/"

// example is what an alert's expression is tried on: two replicas, of which a holds the
// journal until b takes over.
type example struct {
	load  string // series of the job: NAME{LABELS} VALUES
	step  string // between two values; without it a minute
	quiet string // the time at which it is quiet
	fires string // the time at which it fires
	want  string // what it says then
}

var examples = map[string]example{
	"ButlerIPAMNoLeader": {
		load:  `journal_leader{instance="a"} 1x9 0x20`,
		quiet: "9m", fires: "10m", want: `{} 1`,
	},
	"ButlerIPAMAddressConflict": {
		load:  `address_conflicts{instance="a"} 0x9 2x20`,
		quiet: "9m", fires: "10m", want: `{} 2`,
	},
	"ButlerIPAMPoolCapacityWarning": {
		load: `network_pool_total_ips{instance="a",namespace="n",pool="p"} 100x30
		       network_pool_allocated_ips{instance="a",namespace="n",pool="p"} 69x9 70x9 90x9`,
		quiet: "9m", fires: "10m", want: `{namespace="n",pool="p"} 0.7`,
	},
	"ButlerIPAMPoolCapacityCritical": {
		load: `network_pool_total_ips{instance="a",namespace="n",pool="p"} 100x30
		       network_pool_allocated_ips{instance="a",namespace="n",pool="p"} 84x9 85x9 99x9`,
		quiet: "9m", fires: "10m", want: `{namespace="n",pool="p"} 0.85`,
	},
	"ButlerIPAMPoolCapacityExhausted": {
		load: `network_pool_total_ips{instance="a",namespace="n",pool="p"} 100x30
		       network_pool_allocated_ips{instance="a",namespace="n",pool="p"} 94x9 95x9
		       network_pool_total_ips{instance="a",namespace="n",pool="empty"} 0x30
		       network_pool_allocated_ips{instance="a",namespace="n",pool="empty"} 0x30`,
		quiet: "9m", fires: "10m", want: `{namespace="n",pool="p"} 0.95`,
	},
	// 4 addresses an hour: 400 last four days and more, 200 do not. In between b takes
	// over. It has a first value as well, as series are loaded in any order and nothing
	// is taken that is an hour older than the first value of all.
	"ButlerIPAMPoolExhaustionForecast": {
		load: `network_pool_available_ips{instance="a",namespace="n",pool="p"} 496-4x40
		       network_pool_available_ips{instance="b",namespace="n",pool="p"} 496 _x40 332-4x60`,
		step: "1h", quiet: "24h", fires: "74h", want: `{namespace="n",pool="p"} 2.0833333333333335`,
	},
	"ButlerIPAMJournalSlow": {
		load: `journal_commit_duration_seconds_bucket{instance="a",le="0.5"} 0+100x10 1000x10
		       journal_commit_duration_seconds_bucket{instance="a",le="1"} 0+100x20
		       journal_commit_duration_seconds_bucket{instance="a",le="+Inf"} 0+100x20`,
		quiet: "9m", fires: "20m", want: `{} 0.995`,
	},
	// What a stands at after b has taken over says nothing.
	"ButlerIPAMJournalFull": {
		load: `journal_leader{instance="a"} 1x4 0x20
		       journal_leader{instance="b"} 0x4 1x20
		       open_grants{instance="a"} 5000x30
		       open_grants{instance="b"} 500x9 501x20`,
		quiet: "9m", fires: "10m", want: `{} 501`,
	},
	"ButlerIPAMUnservedObjects": {
		load: `unserved_objects{instance="a",resource="r"} 0x9 3x20
		       unserved_objects{instance="b",resource="r"} 0x30`,
		quiet: "9m", fires: "10m", want: `{resource="r"} 3`,
	},
	"ButlerIPAMReadDenied": {
		load: `read_denied{instance="a",resource="r"} 0x9 1x20
		       read_denied{instance="b",resource="r"} 0x30`,
		quiet: "9m", fires: "10m", want: `{resource="r"} 1`,
	},
	"ButlerIPAMMovedRangesNotListed": {
		load: `moved_ranges{instance="a",resource="r",namespace="n",pool="p",state="unlisted"} 0x9 7x20
		       moved_ranges{instance="a",resource="r",namespace="n",pool="p",state="listed"} 5x30`,
		quiet: "9m", fires: "10m", want: `{resource="r",namespace="n",pool="p"} 7`,
	},
	"ButlerIPAMStatusListFull": {
		load:  `status_list_full{instance="a",resource="r",namespace="n",pool="p"} _x9 1x30`,
		quiet: "8m", fires: "9m", want: `{resource="r",namespace="n",pool="p"} 1`,
	},
	"ButlerIPAMMovedRangesUnrecorded": {
		load: `moved_ranges{instance="a",resource="r",namespace="n",pool="p",state="unrecorded"} 0x9 7x20
		       moved_ranges{instance="a",resource="r",namespace="n",pool="p",state="listed"} 5x30`,
		quiet: "9m", fires: "10m", want: `{resource="r",namespace="n",pool="p"} 7`,
	},
	"ButlerIPAMCertificateExpiry": {
		load: `certificate_expiry_timestamp_seconds{instance="a"} 864000x5000
		       certificate_expiry_timestamp_seconds{instance="b"} 8640000x5000`,
		quiet: "72h", fires: "73h", want: `{} 601200`,
	},
	"ButlerIPAMCertificateNotRenewed": {
		load: `certificate_ready{instance="a"} 1x30
		       certificate_ready{instance="b"} 1x9 0x20`,
		quiet: "9m", fires: "10m", want: `{} 0`,
	},
	"ButlerIPAMTenantUnreachable": {
		load:  `tenant_reachable{instance="a",tenant_namespace="n",tenant="t"} 1x9 0x20`,
		quiet: "9m", fires: "10m", want: `{tenant_namespace="n",tenant="t"} 0`,
	},
	"ButlerIPAMTenantServicesWait": {
		load: `tenant_services{instance="a",tenant_namespace="n",tenant="t",state="waiting"} 0x9 3x20
		       tenant_services{instance="a",tenant_namespace="n",tenant="t",state="served"} 2x30`,
		quiet: "9m", fires: "10m", want: `{tenant_namespace="n",tenant="t"} 3`,
	},
}

var names = regexp.MustCompile(`(?m)^[\t ]*(\w+\{)`)

// series returns the promqltest command that loads series of the job.
func series(text, step string) string {
	return "load " + cmp.Or(step, "1m") + "\n" + names.ReplaceAllStringFunc(text, func(name string) string {
		prefix := "butler_ipam_"
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "network_pool") {
			prefix = "butler_"
		}
		return "  " + prefix + name + `job="butler-ipam-metrics",`
	})
}

// rules returns the rules of the chart by name: the alerts, and the expressions of the
// recorded series.
func rules(t *testing.T) (alerts []rulefmt.Rule, recorded map[string]string) {
	t.Helper()
	text, err := os.ReadFile(files + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, faults := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	recorded = map[string]string{}
	for _, rule := range all.Groups[0].Rules {
		rule.Expr = strings.Join(strings.Fields(rule.Expr), " ")
		if rule.Record != "" {
			recorded[rule.Record] = rule.Expr
		} else {
			alerts = append(alerts, rule)
		}
	}
	return alerts, recorded
}

func TestAlerts_Fire(t *testing.T) {
	all, recorded := rules(t)
	var alerts []string
	for _, rule := range all {
		alerts = append(alerts, rule.Alert)
		for name, expression := range recorded {
			rule.Expr = strings.ReplaceAll(rule.Expr, name, "("+expression+")")
		}
		e := examples[rule.Alert]
		script := fmt.Sprintf("%s\n\neval instant at %s %s\n\neval instant at %s %s\n  %s\n", series(e.load, e.step), e.quiet, rule.Expr, e.fires, rule.Expr, e.want)
		t.Run(rule.Alert, func(t *testing.T) { promqltest.RunTest(t, script, promqltest.NewTestEngine(t, false, 0, 1e6)) })
		for _, needed := range []string{rule.Labels["severity"], rule.Annotations["summary"], rule.Annotations["description"]} {
			if needed == "" {
				t.Errorf("%s lacks its severity, its summary or its description", rule.Alert)
			}
		}
	}
	if want := slices.Sorted(maps.Keys(examples)); !slices.Equal(slices.Sorted(slices.Values(alerts)), want) {
		t.Errorf("alerts %v, tried are %v", alerts, want)
	}
}

// queries returns the expressions of the dashboard, with its variables replaced:
// everything of namespace n is selected.
func queries(t *testing.T) (expressions []string) {
	t.Helper()
	text, err := os.ReadFile(files + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(string(text), -1) {
		expressions = append(expressions, strings.NewReplacer(`\"`, `"`, "$__rate_interval", "5m", "$namespace", "n", "$pool", ".*").Replace(query[1][1:len(query[1])-1]))
	}
	if len(expressions) == 0 {
		t.Error("no queries")
	}
	return expressions
}

func TestDashboard_QueriesAreValid(t *testing.T) {
	for _, expression := range queries(t) {
		if _, err := parser.NewParser(parser.Options{}).ParseExpr(expression); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

// The stat "Days until full" shows what the rule records, of the pool that is full first.
func TestDashboard_DaysUntilFull(t *testing.T) {
	const name = "pool:butler_network_pool_available_ips:days_until_full"
	_, recorded := rules(t)
	stat := slices.DeleteFunc(queries(t), func(expression string) bool { return !strings.Contains(expression, name) })
	if len(stat) != 1 || recorded[name] == "" {
		t.Fatalf("the dashboard has the queries %q of %s, which is recorded by %q", stat, name, recorded[name])
	}
	const hours = 30
	for pools, want := range map[string]float64{
		// After 30 hours 120 addresses are left, at 5 an hour: one day.
		`network_pool_available_ips{instance="a",namespace="n",pool="p"} 270-5x40`: 1,
		// The second pool has 200 left, at 40 an hour.
		`network_pool_available_ips{instance="a",namespace="n",pool="p"} 270-5x40
		 network_pool_available_ips{instance="a",namespace="n",pool="q"} 1400-40x40`: 5.0 / 24,
		// Pools of another namespace are not selected.
		`network_pool_available_ips{instance="a",namespace="n",pool="p"} 270-5x40
		 network_pool_available_ips{instance="a",namespace="other",pool="q"} 1400-40x40`: 1,
		// The leader changes. The mark "stale" is no value: it lets both series start at
		// once, as the storage, which is given one series after the other in random
		// order, takes nothing that is 12 hours older than the first.
		`network_pool_available_ips{instance="a",namespace="n",pool="p"} 270-5x20
		 network_pool_available_ips{instance="b",namespace="n",pool="p"} stale _x19 170-5x20`: 1,
		// A full pool.
		`network_pool_available_ips{instance="a",namespace="n",pool="p"} 150-5x30 0x10`: 0,
		// Pools that do not fill.
		`network_pool_available_ips{instance="a",namespace="n",pool="p"} 270x40
		 network_pool_available_ips{instance="a",namespace="n",pool="q"} 270+5x40`: math.NaN(),
	} {
		engine, storage := promqltest.NewTestEngine(t, false, 0, 1e6), promqltest.LoadedStorage(t, series(pools, "1h"))
		at := time.Unix(0, 0).Add(hours * time.Hour)
		evaluate := func(expression string) promql.Vector {
			t.Helper()
			query, err := engine.NewInstantQuery(t.Context(), storage, nil, expression, at)
			if err != nil {
				t.Fatal(err)
			}
			defer query.Close()
			vector, err := query.Exec(t.Context()).Vector()
			if err != nil {
				t.Fatal(err)
			}
			return slices.Clone(vector)
		}
		appender := storage.Appender(t.Context())
		for _, sample := range evaluate(recorded[name]) {
			labelled := labels.NewBuilder(sample.Metric).Set(model.MetricNameLabel, name).Labels()
			if _, err := appender.Append(0, labelled, sample.T, sample.F); err != nil {
				t.Fatal(err)
			}
		}
		if err := appender.Commit(); err != nil {
			t.Fatal(err)
		}
		got := math.NaN()
		if result := evaluate(stat[0]); len(result) == 1 {
			got = result[0].F
		}
		if math.Abs(got-want) > 1e-9 || math.IsNaN(got) != math.IsNaN(want) {
			t.Errorf("%s:\nit shows %v days, want %v", pools, got, want)
		}
	}
}
