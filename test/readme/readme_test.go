package readme

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"butlerlabs.dev/ipam/test/sandbox"
)

// blocks gives the README's fenced blocks of one language, in order.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	return out
}

func TestTheReadmesExamplesDoWhatItSays(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	box, err := sandbox.Start(ctx, sandbox.Options{Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(box.WithinRights(), box.Stop()); err != nil {
			t.Error(err)
		}
	}()

	yamls := blocks(t, "yaml")
	if len(yamls) != 2 {
		t.Fatalf("%d YAML examples, want a pool and an allocation", len(yamls))
	}
	pool, allocation := yamls[0], yamls[1]
	kubectl := func(stdin string, args ...string) (string, string) {
		t.Helper()
		stdout, stderr, err := box.Kubectl(ctx, stdin, args...)
		if err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, stderr)
		}
		return stdout, stderr
	}
	kubectl(pool, "create", "-f", "-")

	console := blocks(t, "console")[0]
	shown := regexp.MustCompile(`(?s)\$ kubectl create -f allocation.yaml (-o jsonpath='(.*?)')\n(.*?)\n\$ kubectl create -f too-large.yaml\n(.*?)…(.*?)…`).FindStringSubmatch(console)
	if shown == nil {
		t.Fatalf("the console block has another shape:\n%s", console)
	}
	if got, _ := kubectl(allocation, "create", "-f", "-", "-o", "jsonpath="+shown[2]); got != shown[3] {
		t.Errorf("the create prints %s, the README %s", got, shown[3])
	}
	for range 2 {
		kubectl(allocation, "apply", "-f", "-")
	}
	if got, _ := kubectl("", "get", "ipallocation", "-n", "butler-system", "my-cluster-lb", "-o", "jsonpath="+shown[2]); got != shown[3] {
		t.Errorf("applied twice it has %s", got)
	}

	large := strings.NewReplacer("name: my-cluster-lb", "name: too-large", "count: 8", "count: 500").Replace(allocation)
	_, stderr, err := box.Kubectl(ctx, large, "create", "-f", "-")
	for _, part := range []string{strings.TrimSpace(shown[4]), strings.TrimSpace(shown[5])} {
		if err == nil || !strings.Contains(stderr, part) {
			t.Errorf("the refusal is\n%s\nwithout what the README shows:\n%s", stderr, part)
		}
	}
	nine := strings.Replace(allocation, "count: 8", "count: 9", 1)
	if _, stderr, err := box.Kubectl(ctx, nine, "apply", "-f", "-"); err == nil || !strings.Contains(stderr, "cannot be changed") {
		t.Errorf("another count is applied: %v", err)
	}
	kubectl(nine, "apply", "--force", "--timeout=1m", "-f", "-")
	if got, _ := kubectl("", "get", "ipallocation", "-n", "butler-system", "my-cluster-lb", "-o", "jsonpath={.spec.count}"); got != "9" {
		t.Errorf("applied with --force it has count %s", got)
	}
}
