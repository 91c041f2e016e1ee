package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// object is one as far as it matters here.
type object struct {
	Metadata struct{ Name string }
	Status   struct {
		Address    *struct{ Name string } // of an IPClaim, which has no conditions
		Conditions []struct{ Type, Status string }
	}
}

func (o *object) ready() bool {
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" || c.Type == "Bound" {
			return c.Status == "True"
		}
	}
	return o.Status.Address != nil
}

// event is what a watch says of one object.
type event struct {
	Type   string
	Object object
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
