package main

import (
	"context"
	"slices"
	"testing"
)

type heard []string

func (h *heard) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	*h = append(*h, text)
}

func TestWarnings_OmitFinalizerNames(t *testing.T) {
	var got heard
	w := warningFilter{&got}
	for _, text := range []string{
		`metadata.finalizers: "ipaddress.ipam.metal3.io": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`,
		`unknown field "spec.bogus"`,
	} {
		w.HandleWarningHeaderWithContext(t.Context(), 299, "-", text)
	}
	if want := []string{`unknown field "spec.bogus"`}; !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}
