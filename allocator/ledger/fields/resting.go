package fields

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// resting is one range in annotation butlerv1.AnnotationResting of a pool.
type resting struct {
	Range string       `json:"range"`           // first-last, or one address
	Since *metav1.Time `json:"since,omitempty"` // begin of its rest
	Until *metav1.Time `json:"until,omitempty"` // end of its rest
	Claim string       `json:"claim,omitempty"` // that took it to another cluster: kind/namespace/name
	Left  string       `json:"uid,omitempty"`   // of the object that went with it
	// Pool and Revision are in the first entry of a list, which has no range: readers of before skip that.
	Pool     string `json:"pool,omitempty"`     // UID of the pool
	Revision string `json:"revision,omitempty"` // version of the pool on which the list is based
}

// List is annotation butlerv1.AnnotationResting of a pool as it was read.
type List struct {
	Ranges []ledger.Cooling
	// Readable is false where nothing can be read: somebody broke the text, or a later release wrote it.
	Readable bool
	// Revision is ledger.Pool's Listed.
	Revision uint64
}

// Resting reads which ranges a pool records as resting, and as gone to another cluster. An entry that cannot be read does not count: then the absence of
// another means nothing either, as it may be that one.
func Resting(pool metav1.Object) (l List) {
	annotation := pool.GetAnnotations()[butlerv1.AnnotationResting]
	l.Readable = true
	if annotation == "" {
		return l
	}
	entries, err := readEntries(annotation)
	if err != nil {
		l.Readable = false
		return l
	}
	if len(entries) == 0 { // no release has written that
		l.Revision = ledger.AllListed
		return l
	}
	if first := entries[0]; first.Pool != "" && first.Pool == string(pool.GetUID()) {
		l.Revision, _ = strconv.ParseUint(first.Revision, 10, 64)
	}
	for i, e := range entries {
		if i == 0 && e.Pool != "" {
			continue
		}
		r, err := readRange(e.Range)
		if err != nil {
			l.Revision = 0
			continue
		}
		c := ledger.Cooling{Range: r}
		if e.Until != nil {
			c.Until = e.Until.Time
			if e.Since != nil {
				c.Since = e.Since.Time
			}
		} else if c.Claim, c.Left = claimKey(e.Claim), e.Left; c.Claim == (ledger.Key{}) {
			l.Revision = 0
			continue
		}
		l.Ranges = append(l.Ranges, c)
	}
	return l
}

// moved is one range of a record of those that went to other clusters.
type moved struct {
	Range  string `json:"range"`
	Claim  string `json:"claim"`
	Left   string `json:"uid,omitempty"`
	Shown  uint64 `json:"shown,omitempty"`
	Hidden uint64 `json:"hidden,omitempty"`
}

// MovedText is the text of a part of a record.
func MovedText(all []ledger.Moved) string {
	entries := make([]moved, len(all))
	for i, m := range all {
		entries[i] = moved{rangeText(m.Range), claimText(m.Claim), m.Left, m.Shown, m.Hidden}
	}
	text, _ := json.Marshal(entries) // of texts and numbers, which cannot fail
	return string(text)
}

// ReadMoved reads MovedText.
func ReadMoved(text string) (all []ledger.Moved, err error) {
	var entries []moved
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, err
	}
	for _, e := range entries {
		r, err := readRange(e.Range)
		if err != nil {
			return nil, err
		}
		all = append(all, ledger.Moved{Range: r, Claim: claimKey(e.Claim), Left: e.Left, Shown: e.Shown, Hidden: e.Hidden})
	}
	return all, nil
}

func readRange(text string) (allocator.Range, error) {
	first, last, two := strings.Cut(text, "-")
	if !two {
		last = first
	}
	r, errs := Range(nil, At(nil, first), At(nil, last))
	if len(errs) > 0 {
		return r, errs[0]
	}
	return r, nil
}

func claimText(k ledger.Key) string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

func claimKey(text string) ledger.Key {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return ledger.Key{}
	}
	return ledger.Key{Kind: parts[0], Namespace: parts[1], Name: parts[2]}
}

// spare is left of an object's annotations, in bytes, for what others add.
const spare = 16 << 10

// room is what a pool has for the text, in bytes: its annotations have a limit together.
func room(pool metav1.Object) int {
	left := apivalidation.TotalAnnotationSizeLimitB - spare - len(butlerv1.AnnotationResting)
	for key, value := range pool.GetAnnotations() {
		if key != butlerv1.AnnotationResting {
			left -= len(key) + len(value)
		}
	}
	return left
}

// RestingText is the annotation of a pool for these ranges, with the version of the pool on which it is based; "" for none. One that takes more than there
// is room for is packed. lacking are those that it has no room for even then: what rests no longer soonest, of what rests until a time.
func RestingText(pool metav1.Object, all []ledger.Cooling, base uint64) (text string, lacking []ledger.Cooling) {
	room := room(pool)
	if text = restingText(pool, all, base); len(text) <= room {
		return text, nil
	}
	ends := slices.SortedStableFunc(slices.Values(all), func(x, y ledger.Cooling) int { // the last first, and before that those without an end
		return cmp.Or(cmp.Compare(b2i(y.Until.IsZero()), b2i(x.Until.IsZero())), y.Until.Compare(x.Until))
	})
	for {
		if len(all) == 0 {
			return "", lacking
		}
		if text = pack(restingText(pool, all, base)); len(text) <= room {
			return text, lacking
		}
		fit := len(all) * max(room, 0) / len(text)
		lacking = ends[max(0, fit-fit/32-1):] // all are of much the same size
		left := map[allocator.Range]bool{}
		for _, c := range lacking {
			left[c.Range] = true
		}
		all = slices.DeleteFunc(slices.Clone(all), func(c ledger.Cooling) bool { return left[c.Range] })
	}
}

// Based gives the version of the pool on which its list is based, of one that is the pool's own; else 0.
func (l List) Based() uint64 {
	if l.Revision == ledger.AllListed {
		return 0
	}
	return l.Revision
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// packed is what a text begins with that was compressed, in base64.
const packed = "gzip:"

func pack(text string) string {
	var b bytes.Buffer
	b.WriteString(packed)
	base := base64.NewEncoder(base64.StdEncoding, &b)
	compressed := gzip.NewWriter(base)
	_, _ = io.WriteString(compressed, text) // into memory, which takes all
	_ = errors.Join(compressed.Close(), base.Close())
	return b.String()
}

// What a text that somebody else wrote may come to: some times what we write, of which a pool's annotations have room for less than 10,000 entries.
const (
	maxUnpacked = 8 << 20 // bytes
	maxEntries  = 1 << 15
)

func unpack(text string) (io.Reader, error) {
	base, is := strings.CutPrefix(text, packed)
	if !is {
		return strings.NewReader(text), nil
	}
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(base)))
	return io.LimitReader(r, maxUnpacked), err
}

// readEntries reads a list, one entry after the other: no more of it is in memory than may be.
func readEntries(text string) (entries []resting, err error) {
	r, err := unpack(text)
	if err != nil {
		return nil, err
	}
	list := json.NewDecoder(r)
	if begin, err := list.Token(); err != nil || begin != json.Delim('[') {
		return nil, errors.Join(err, errors.New("no list"))
	}
	for list.More() {
		var e resting
		if err := list.Decode(&e); err != nil {
			return nil, err
		}
		if entries = append(entries, e); len(entries) > maxEntries {
			return nil, errors.New("too many entries")
		}
	}
	_, err = list.Token() // its end
	return entries, err
}

func restingText(pool metav1.Object, all []ledger.Cooling, base uint64) string {
	var entries []resting
	if slices.ContainsFunc(all, func(c ledger.Cooling) bool { return c.Until.IsZero() }) {
		// Of one length, so that what has room once has room with any revision.
		entries = append(entries, resting{Pool: string(pool.GetUID()), Revision: fmt.Sprintf("%020d", base)})
	}
	for _, c := range all {
		e := resting{Range: rangeText(c.Range)}
		if c.Until.IsZero() {
			e.Claim, e.Left = claimText(c.Claim), c.Left
		} else {
			e.Until = written(c.Until)
			if !c.Since.IsZero() {
				e.Since = written(c.Since)
			}
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return ""
	}
	text, _ := json.Marshal(entries) // of texts and times, which cannot fail
	return string(text)
}

// written is a time as it is written, which is not finer than a second: no rest is shorter for that.
func written(t time.Time) *metav1.Time {
	at := metav1.NewTime(t.UTC().Add(time.Second - time.Nanosecond).Truncate(time.Second))
	return &at
}

func rangeText(r allocator.Range) string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}
