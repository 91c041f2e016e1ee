package fields

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

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
}

// Resting reads which ranges a pool records as resting, and as gone to another cluster. What cannot be read does not count.
func Resting(pool metav1.Object) []ledger.Cooling {
	var (
		entries []resting
		all     []ledger.Cooling
	)
	text, err := unpack(pool.GetAnnotations()[butlerv1.AnnotationResting])
	if err != nil || json.Unmarshal(text, &entries) != nil {
		return nil
	}
	for _, e := range entries {
		first, last, two := strings.Cut(e.Range, "-")
		if !two {
			last = first
		}
		r, errs := Range(nil, At(nil, first), At(nil, last))
		if len(errs) > 0 {
			continue
		}
		c := ledger.Cooling{Range: r}
		if e.Until != nil {
			c.Until = e.Until.Time
			if e.Since != nil {
				c.Since = e.Since.Time
			}
		} else if c.Claim, c.Left = claimKey(e.Claim), e.Left; c.Claim == (ledger.Key{}) {
			continue
		}
		all = append(all, c)
	}
	return all
}

func claimKey(text string) ledger.Key {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return ledger.Key{}
	}
	return ledger.Key{Kind: parts[0], Namespace: parts[1], Name: parts[2]}
}

// room is for the text, in bytes: the annotations of an object may have 262,144 together. A text that takes more is packed, and one that takes more
// even then says less.
const room = 192 << 10

// RestingText is the annotation for these ranges; "" for none. lacking are those that it has no room for: what rests no longer soonest, of what
// rests until a time.
func RestingText(all []ledger.Cooling) (text string, lacking int) {
	if text = restingText(all); len(text) <= room {
		return text, 0
	}
	ends := slices.SortedFunc(slices.Values(all), func(x, y ledger.Cooling) int { // the last first, and before that those without an end
		return cmp.Or(cmp.Compare(b2i(y.Until.IsZero()), b2i(x.Until.IsZero())), y.Until.Compare(x.Until))
	})
	for {
		if text = pack(restingText(all)); len(text) <= room || len(all) == 0 {
			return text, lacking
		}
		lacking = min(lacking+len(ends)/16+1, len(ends))
		left := map[allocator.Range]bool{}
		for _, c := range ends[len(ends)-lacking:] {
			left[c.Range] = true
		}
		all = slices.DeleteFunc(slices.Clone(all), func(c ledger.Cooling) bool { return left[c.Range] })
	}
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
	compressed, _ := gzip.NewWriterLevel(base, gzip.BestCompression) // a level that there is
	_, _ = io.WriteString(compressed, text)                          // into memory, which takes all
	_ = errors.Join(compressed.Close(), base.Close())
	return b.String()
}

// maxUnpacked bounds what a text that somebody else wrote may unpack to.
const maxUnpacked = 16 << 20

func unpack(text string) ([]byte, error) {
	base, is := strings.CutPrefix(text, packed)
	if !is {
		return []byte(text), nil
	}
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(base)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxUnpacked))
}

func restingText(all []ledger.Cooling) string {
	var entries []resting
	for _, c := range all {
		e := resting{Range: rangeText(c.Range)}
		if c.Until.IsZero() {
			e.Claim, e.Left = c.Claim.Kind+"/"+c.Claim.Namespace+"/"+c.Claim.Name, c.Left
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
