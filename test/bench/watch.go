package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// event is what a watch says of one object, as far as it matters here.
type event struct {
	Type   string
	Object struct {
		Metadata struct{ Name string }
		Status   struct {
			Address    *struct{ Name string } // of an IPClaim, which has no conditions
			Conditions []struct{ Type, Status string }
		}
	}
}

func (e *event) ready() bool {
	for _, c := range e.Object.Status.Conditions {
		if c.Type == "Ready" || c.Type == "Bound" {
			return c.Status == "True"
		}
	}
	return e.Object.Status.Address != nil
}

// watch is an open watch on a collection.
type watch struct {
	stream  io.ReadCloser
	decoder *json.Decoder
}

// watch tells of the objects that exist, and from its return on misses no change.
func (c *collection) watch(ctx context.Context) (*watch, error) {
	stream, err := c.raw.Get().AbsPath(c.path()).Param("watch", "1").Param("resourceVersion", "0").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", c.path(), err)
	}
	return &watch{stream, json.NewDecoder(stream)}, nil
}

// until hands every event to see until that has seen enough, and closes the watch.
func (w *watch) until(see func(*event) (enough bool)) error {
	defer w.stream.Close()
	for {
		var e event
		if err := w.decoder.Decode(&e); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if e.Type == "ERROR" {
			return errors.New("the API server has ended the watch")
		}
		if see(&e) {
			return nil
		}
	}
}

// awaitReady returns when all objects of a collection, n of them, are Ready. The API server ends a watch that it finds too slow, on a
// machine at its limit with good reason: the next one begins with all that exist.
func (c *collection) awaitReady(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ready := make(map[string]bool, n)
	for {
		w, err := c.watch(ctx)
		if err == nil {
			err = w.until(func(e *event) bool {
				if e.ready() {
					ready[e.Object.Metadata.Name] = true
				}
				return len(ready) == n
			})
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !errors.Is(err, io.EOF) {
			return fmt.Errorf("%d of %d objects are Ready: %w", len(ready), n, err)
		}
	}
}
