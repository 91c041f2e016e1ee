package main

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"
)

func TestOptions_FlagsEnvironmentAndDefaults(t *testing.T) {
	env := map[string]string{
		"POD_NAME": "pod-1", "POD_NAMESPACE": "ipam", "POD_IP": "10.1.2.3",
		"BUTLER_IPAM_GRANT_EXPIRY": "90s", "BUTLER_IPAM_LOG_LEVEL": "debug", "BUTLER_IPAM_METRICS_SECURE": "false",
	}
	o, err := parseOptions([]string{"--log-level=error", "--webhook-bind-address=:7443"}, func(k string) string { return env[k] }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]bool{
		"POD_NAME":                           o.identity == "pod-1",
		"POD_NAMESPACE":                      o.namespace == "ipam",
		"POD_IP and the port of the webhook": o.advertise == "10.1.2.3:7443" && o.webhookPort == 7443 && o.webhookHost == "",
		"environment over default":           o.grantLife == 90*time.Second && !o.metricsSecure,
		"flag over environment":              o.logLevel == "error",
		"default":                            o.logFormat == "json" && o.shutdownDelay == 2*time.Second,
	} {
		if !got {
			t.Errorf("%s does not count: %+v", what, o)
		}
	}
}

// The flag with an empty name is not the flag that is absent.
func TestOptions_ClusterRoutingDomain(t *testing.T) {
	red, byDefault := "red", ""
	for _, tc := range []struct {
		args []string
		env  string
		want *string
	}{{nil, "", nil}, {[]string{"--cluster-routing-domain="}, "", &byDefault}, {[]string{"--cluster-routing-domain="}, "red", &byDefault}, {[]string{"--cluster-routing-domain=red"}, "", &red}, {nil, "red", &red}} {
		getenv := func(k string) string { return map[string]string{"BUTLER_IPAM_CLUSTER_ROUTING_DOMAIN": tc.env}[k] }
		o, err := parseOptions(append([]string{"--namespace=ipam", "--advertise-address=10.1.2.3:9443"}, tc.args...), getenv, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.clusterDomain.name; (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%v, environment %q: %v", tc.args, tc.env, o.clusterDomain)
		}
	}
}

func TestOptions_NameAllFaults(t *testing.T) {
	whole := []string{"--namespace=ipam", "--advertise-address=10.1.2.3:9443"}
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		want []string
	}{
		"nothing given":  {nil, nil, []string{"--namespace is missing", "--advertise-address"}},
		"short grants":   {append(whole, "--grant-expiry=44s"), nil, []string{"--grant-expiry 44s must be at least 45s"}},
		"bad port":       {append(whole, "--webhook-bind-address=:65536"), nil, []string{`--webhook-bind-address ":65536" must be host:port`}},
		"no probes":      {append(whole, "--health-probe-bind-address="), nil, []string{`--health-probe-bind-address "" must be host:port, or 0 for none`}},
		"bad metrics":    {append(whole, "--metrics-bind-address=8080"), nil, []string{`--metrics-bind-address "8080" must be host:port, or 0 for none`}},
		"bad namespace":  {append(whole, "--namespace=BAD_ns"), nil, []string{`--namespace "BAD_ns" is not a valid name of a namespace`}},
		"empty names":    {append(whole, "--mutating-webhook-configurations="), nil, []string{"a name is empty"}},
		"bad variable":   {whole, map[string]string{"BUTLER_IPAM_GRANT_EXPIRY": "soon"}, []string{`BUTLER_IPAM_GRANT_EXPIRY="soon"`}},
		"bad domain":     {append(whole, "--cluster-routing-domain=a b"), nil, []string{`invalid value "a b" for flag -cluster-routing-domain: not a name of a routing domain, which is a label value`}},
		"unknown word":   {append(whole, "serve"), nil, []string{`"serve" is neither a flag nor the command console`}},
		"unknown flag":   {append(whole, "--leader-elect"), nil, []string{"leader-elect"}},
		"negative delay": {append(whole, "--shutdown-delay=-1s"), nil, []string{"--shutdown-delay -1s must not be negative"}},
		"hasty tenants": {append(whole, "--tenants", "--tenants-shrink-after=-1s", "--tenants-settle=-1s", "--tenants-max-services=0"), nil,
			[]string{"--tenants-shrink-after -1s must not be negative", "--tenants-settle -1s", "--tenants-max-services 0 must be at least 1"}},
		"tenants alone":   {append(whole, "--tenants", "--apis=novaedge"), nil, []string{"--tenants requires NetworkPools: add butler to --apis (novaedge)"}},
		"two renewers":    {append(whole, "--certificate=a", "--webhook-cert-secret=b"), nil, []string{"--certificate a and --webhook-cert-secret b exclude each other"}},
		"no ProxyVIPs":    {append(whole, "--apis=butler", "--service-vips"), nil, []string{"--service-vips requires novaedge in --apis (butler)"}},
		"short life":      {append(whole, "--webhook-cert-duration=59s"), nil, []string{"--webhook-cert-duration 59s must be at least 1m0s"}},
		"advertised port": {[]string{"--namespace=ipam", "--advertise-address=:9443"}, nil, []string{"--advertise-address"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(tc.args, func(k string) string { return tc.env[k] }, io.Discard)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want it to say %q", err, want)
				}
			}
		})
	}
}

func TestHelp_NamesFlagsAndDefaults(t *testing.T) {
	var help strings.Builder
	if _, err := parseOptions([]string{"--help"}, func(string) string { return "" }, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("got %v, want flag.ErrHelp", err)
	}
	for _, want := range []string{"--kubeconfig", "--namespace namespace", "--webhook-client-ca file", "--grant-expiry", "(default 2m0s)", "BUTLER_IPAM_LOG_LEVEL"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("help does not say %q:\n%s", want, help.String())
		}
	}
}

func TestVersion_NeedsNoOtherFlag(t *testing.T) {
	if o, err := parseOptions([]string{"--version"}, func(string) string { return "" }, io.Discard); err != nil || !o.version {
		t.Errorf("got %v, %v", o, err)
	}
}

func TestLogger_RejectsUnknownFormatsAndLevels(t *testing.T) {
	for _, tc := range []struct {
		format, level string
		ok            bool
	}{
		{"json", "info", true}, {"console", "debug", true}, {"json", "error", true}, {"json", "4", true},
		{"text", "info", false}, {"json", "loud", false}, {"json", "-1", false},
	} {
		if _, err := newLogger(tc.format, tc.level); (err == nil) != tc.ok {
			t.Errorf("--log-format=%s --log-level=%s: %v", tc.format, tc.level, err)
		}
	}
	if log, _ := newLogger("json", "2"); !log.V(2).Enabled() || log.V(3).Enabled() {
		t.Error("--log-level=2 does not show V(2) and hide V(3)")
	}
}

// The flags and environment variables of the console differ from those of the manager.
func TestConsoleOptions(t *testing.T) {
	environment := map[string]string{"BUTLER_IPAM_CERT_DIR": "/certificate", "BUTLER_IPAM_BIND_ADDRESS": ":1"}
	o, err := parseConsoleOptions([]string{"--bind-address=:2", "--log-level=debug"}, func(name string) string { return environment[name] }, io.Discard)
	if err != nil || o.Bind != ":2" || o.CertDir != "/certificate" || o.ProbeBind != ":8081" || o.logLevel != "debug" || o.logFormat != "json" {
		t.Errorf("%+v, %v", o, err)
	}
	for arg, want := range map[string]string{"serve": `"serve" is not a flag`, "--apis=butler": "not defined: -apis"} {
		if _, err := parseConsoleOptions([]string{arg}, func(string) string { return "" }, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, got %v", arg, want, err)
		}
	}
}
