package poolrecord

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
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// entry is one range in the cooldown list of a pool.
type entry struct {
	Range      string       `json:"range"`           // first-last, or one address
	ReleasedAt *metav1.Time `json:"since,omitempty"` // begin of the cooldown
	FreeAt     *metav1.Time `json:"until,omitempty"` // end of the cooldown
	Claim      string       `json:"claim,omitempty"` // of a moved range: kind/namespace/name
	MovedUID   string       `json:"uid,omitempty"`   // UID of the moved object
	// Pool and Revision are in the first entry of a list, which has no range: earlier
	// manager versions skip an entry without a range. Pool is the UID of the pool.
	Pool     string `json:"pool,omitempty"`
	Revision string `json:"revision,omitempty"` // see ledger.Pool.MovedListRevision
}

// List is the decoded cooldown list of a pool: the annotation
// butlerv1.AnnotationCooldown.
type List struct {
	Ranges []ledger.RecordedRange
	// Readable is false if the text cannot be decoded: an editor damaged the text, or a
	// later manager version wrote it.
	Readable bool
	// Revision is ledger.Pool.MovedListRevision.
	Revision uint64
}

// ReadList decodes the cooldown list of a pool. An entry that cannot be decoded is
// skipped and sets Revision to 0: with a revision, a range that is missing from the list
// would count as removed by a person, and be freed.
func ReadList(pool metav1.Object) (l List) {
	annotation := pool.GetAnnotations()[butlerv1.AnnotationCooldown]
	l.Readable = true
	if annotation == "" {
		return l
	}
	entries, err := readEntries(annotation)
	if err != nil {
		l.Readable = false
		return l
	}
	if len(entries) == 0 { // a person emptied the list: no manager version writes an empty list
		l.Revision = ledger.EmptiedList
		return l
	}
	if first := entries[0]; first.Pool != "" && first.Pool == string(pool.GetUID()) {
		l.Revision, _ = strconv.ParseUint(first.Revision, 10, 64)
	}
	for i, e := range entries {
		if i == 0 && e.Pool != "" {
			continue
		}
		r, err := parseRange(e.Range)
		if err != nil {
			l.Revision = 0
			continue
		}
		c := ledger.RecordedRange{Range: r}
		if e.FreeAt != nil {
			c.Until = e.FreeAt.Time
			if e.ReleasedAt != nil {
				c.Since = e.ReleasedAt.Time
			}
		} else if c.Claim, c.MovedUID = parseClaim(e.Claim), e.MovedUID; c.Claim == (ledger.Key{}) {
			l.Revision = 0
			continue
		}
		l.Ranges = append(l.Ranges, c)
	}
	return l
}

// movedEntry is one range of a moved record.
type movedEntry struct {
	Range            string `json:"range"`
	Claim            string `json:"claim"`
	MovedUID         string `json:"uid,omitempty"`
	ListedSince      uint64 `json:"shown,omitempty"`
	IgnoreListsUntil uint64 `json:"hidden,omitempty"`
}

// FormatMoved encodes a part of a moved record.
func FormatMoved(all []ledger.Moved) string {
	entries := make([]movedEntry, len(all))
	for i, m := range all {
		entries[i] = movedEntry{formatRange(m.Range), formatClaim(m.Claim), m.MovedUID, m.ListedSince, m.IgnoreListsUntil}
	}
	text, _ := json.Marshal(entries) // encoding texts and numbers cannot fail
	return string(text)
}

// ParseMoved decodes the result of FormatMoved.
func ParseMoved(text string) (all []ledger.Moved, err error) {
	var entries []movedEntry
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, err
	}
	for _, e := range entries {
		r, err := parseRange(e.Range)
		if err != nil {
			return nil, err
		}
		all = append(all, ledger.Moved{Range: r, Claim: parseClaim(e.Claim), MovedUID: e.MovedUID, ListedSince: e.ListedSince, IgnoreListsUntil: e.IgnoreListsUntil})
	}
	return all, nil
}

func parseRange(text string) (allocator.Range, error) {
	first, last, two := strings.Cut(text, "-")
	if !two {
		last = first
	}
	r, errs := fieldtext.ParseRange(nil, fieldtext.At(nil, first), fieldtext.At(nil, last))
	if len(errs) > 0 {
		return r, errs[0]
	}
	return r, nil
}

func formatClaim(k ledger.Key) string { return k.Resource + "/" + k.Namespace + "/" + k.Name }

func parseClaim(text string) ledger.Key {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return ledger.Key{}
	}
	return ledger.Key{Resource: parts[0], Namespace: parts[1], Name: parts[2]}
}

// spareBytes of an object's annotations are left for other authors.
const spareBytes = 16 << 10

// freeBytes returns the bytes that a pool has for the annotation: the API server limits
// the total size of an object's annotations.
func freeBytes(pool metav1.Object) int {
	left := apivalidation.TotalAnnotationSizeLimitB - spareBytes - len(butlerv1.AnnotationCooldown)
	for key, value := range pool.GetAnnotations() {
		if key != butlerv1.AnnotationCooldown {
			left -= len(key) + len(value)
		}
	}
	return left
}

// FormatList returns the cooldown list of a pool with these ranges and this revision; ""
// without ranges. Only a list with moved ranges contains the revision. A text that does
// not fit is compressed. If the compressed text does not fit, some ranges are left out
// and returned as unlisted: first the cooldowns that end soonest, then moved ranges.
func FormatList(pool metav1.Object, all []ledger.RecordedRange, revision uint64) (text string, unlisted []ledger.RecordedRange) {
	room := freeBytes(pool)
	if text = formatEntries(pool, all, revision); len(text) <= room {
		return text, nil
	}
	byPriority := slices.SortedStableFunc(slices.Values(all), func(x, y ledger.RecordedRange) int { // moved ranges first, then the cooldowns that end last
		return cmp.Or(cmp.Compare(boolToInt(y.IsMoved()), boolToInt(x.IsMoved())), y.Until.Compare(x.Until))
	})
	for {
		if len(all) == 0 {
			return "", unlisted
		}
		if text = compress(formatEntries(pool, all, revision)); len(text) <= room {
			return text, unlisted
		}
		fit := len(all) * max(room, 0) / len(text)
		unlisted = byPriority[max(0, fit-fit/32-1):] // all entries have similar sizes
		omitted := map[allocator.Range]bool{}
		for _, c := range unlisted {
			omitted[c.Range] = true
		}
		all = slices.DeleteFunc(slices.Clone(all), func(c ledger.RecordedRange) bool { return omitted[c.Range] })
	}
}

// StoredRevision returns the revision that the text of the list contains; 0 if the text
// has none, or belongs to another pool.
func (l List) StoredRevision() uint64 {
	if l.Revision == ledger.EmptiedList {
		return 0
	}
	return l.Revision
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// gzipPrefix begins a compressed text in base64.
const gzipPrefix = "gzip:"

func compress(text string) string {
	var b bytes.Buffer
	b.WriteString(gzipPrefix)
	base := base64.NewEncoder(base64.StdEncoding, &b)
	compressed := gzip.NewWriter(base)
	_, _ = io.WriteString(compressed, text) // writing to memory cannot fail
	_ = errors.Join(compressed.Close(), base.Close())
	return b.String()
}

// Bounds of a decoded text that another client wrote. The annotations of a pool have room
// for fewer than 10,000 entries of the allocator.
const (
	maxUnpacked = 8 << 20 // bytes
	maxEntries  = 1 << 15
)

func decompress(text string) (io.Reader, error) {
	base, is := strings.CutPrefix(text, gzipPrefix)
	if !is {
		return strings.NewReader(text), nil
	}
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(base)))
	return io.LimitReader(r, maxUnpacked), err
}

// readEntries decodes a list entry by entry, so that its memory is bounded by maxEntries.
func readEntries(text string) (entries []entry, err error) {
	r, err := decompress(text)
	if err != nil {
		return nil, err
	}
	list := json.NewDecoder(r)
	if begin, err := list.Token(); err != nil || begin != json.Delim('[') {
		return nil, errors.Join(err, errors.New("no list"))
	}
	for list.More() {
		var e entry
		if err := list.Decode(&e); err != nil {
			return nil, err
		}
		if entries = append(entries, e); len(entries) > maxEntries {
			return nil, errors.New("too many entries")
		}
	}
	_, err = list.Token() // the closing bracket
	return entries, err
}

func formatEntries(pool metav1.Object, all []ledger.RecordedRange, revision uint64) string {
	var entries []entry
	if slices.ContainsFunc(all, func(c ledger.RecordedRange) bool { return c.IsMoved() }) {
		// Padded, so that a text that fits once fits with every revision.
		entries = append(entries, entry{Pool: string(pool.GetUID()), Revision: fmt.Sprintf("%020d", revision)})
	}
	for _, c := range all {
		e := entry{Range: formatRange(c.Range)}
		if c.IsMoved() {
			e.Claim, e.MovedUID = formatClaim(c.Claim), c.MovedUID
		} else {
			e.FreeAt = formatTime(c.Until)
			if !c.Since.IsZero() {
				e.ReleasedAt = formatTime(c.Since)
			}
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return ""
	}
	text, _ := json.Marshal(entries) // encoding texts and times cannot fail
	return string(text)
}

// formatTime rounds up to a second, the precision of the annotation, so that no cooldown
// becomes shorter.
func formatTime(t time.Time) *metav1.Time {
	at := metav1.NewTime(t.UTC().Add(time.Second - time.Nanosecond).Truncate(time.Second))
	return &at
}

func formatRange(r allocator.Range) string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}
