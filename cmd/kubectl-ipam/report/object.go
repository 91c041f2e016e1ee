package report

import (
	"fmt"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Object is the name of an object. The name is empty if the reader may not list the
// object.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// NewObject returns the name of an object; nil for the zero key.
func NewObject(k inventory.Key) *Object {
	if k == (inventory.Key{}) {
		return nil
	}
	if inventory.IsAnonymous(k) {
		return &Object{Kind: inventory.KindOf(k)}
	}
	return &Object{Kind: inventory.KindOf(k), Namespace: k.Namespace, Name: k.Name}
}

func newObjects(keys []inventory.Key) (list []*Object) {
	for _, k := range keys {
		list = append(list, NewObject(k))
	}
	return list
}

// String returns "IPAllocation namespace/name", or "(IPAllocation)" for an object without
// a name; "" for nil.
func (o *Object) String() string {
	switch {
	case o == nil:
		return ""
	case o.Name == "" && o.Namespace == "":
		return "(" + o.Kind + ")"
	case o.Namespace == "":
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Listed joins at most limit texts and appends the number of further texts.
func Listed(texts []string, limit int) string {
	if len(texts) <= limit {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:limit], ", "), len(texts)-limit)
}

// RangeTexts returns first-last or a single address for each range of a claim.
func RangeTexts(ranges []allocator.Range) []string {
	texts := []string{}
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	return texts
}

// NetworkTexts returns the NetworkText of each range of a pool.
func NetworkTexts(ranges []allocator.Range) []string {
	texts := []string{}
	for _, r := range ranges {
		texts = append(texts, NetworkText(r))
	}
	return texts
}

// NetworkText returns a network such as 10.40.1.0/24 for a range with the addresses of a
// network, and first-last or a single address for other ranges.
func NetworkText(r allocator.Range) string {
	if network, ok := r.Prefix(); ok && r.First != r.Last {
		return network.String()
	}
	return r.String()
}

// OptionalTime returns a time in seconds; nil for the zero time.
func OptionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

// TimeText returns a time in RFC 3339; "" for nil.
func TimeText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339)
}
