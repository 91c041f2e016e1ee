package allocator

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestVectors replays testdata/vectors.txt, where the commands are explained.
// "->" is followed by the answer; other lines set the scene.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	title := regexp.MustCompile(`^[A-E][0-9]+ `)
	vectors := map[string][]string{} // title -> lines
	name := ""
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#':
		case title.MatchString(line):
			name = line
		default:
			vectors[name] = append(vectors[name], line)
		}
	}
	// A1-A9, B1-B8, C1-C22, D1-D10, E1-E8
	if len(vectors) != 9+8+22+10+8 {
		t.Errorf("%d vectors found", len(vectors))
	}
	for name, lines := range vectors {
		t.Run(name, func(t *testing.T) {
			var st stage
			for _, line := range lines {
				command, want, _ := strings.Cut(line, " -> ")
				verb, rest, _ := strings.Cut(command, " ")
				got, err := st.play(verb, rest)
				if err != nil {
					t.Logf("%s: %v", line, err)
					got = "error"
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", line, diff)
				}
			}
		})
	}
}

// stage is one pool and who has what of it: every range its own owner.
type stage struct {
	space *Space
	pool  *Pool
	taken []Range
}

func (st *stage) play(verb, rest string) (string, error) {
	switch verb {
	case "number":
		r, err := ParseRange(rest)
		return fmt.Sprint(numberOf(r.First).minus(firstIPv4).lo), err
	case "parse":
		r, err := ParseRange(rest)
		return fmt.Sprint(r, " ", r.Size()), err
	case "enumerate":
		r, err := ParseRange(rest)
		n := 0
		for range r.Addresses() {
			n++
		}
		return fmt.Sprint(n), err
	case "text":
		r, err := ParseRange(rest)
		return r.Text(), err
	case "covers":
		ranges, err := parseAll(rest)
		if err != nil {
			return "", err
		}
		return map[bool]string{true: "yes", false: "no"}[ranges[0].Covers(ranges[1])], nil
	case "total":
		ranges, err := parseAll(rest)
		return fmt.Sprint(Total(ranges)), err
	case "unmanaged":
		ranges, err := parseAll(rest)
		left := Unmanaged(ranges[0], ranges[1:], nil)
		return fmt.Sprint(ranged(left), " ", Total(left)), err
	case "pool":
		window, blocked, _ := strings.Cut(rest, "blocked")
		windows, err := parseAll(window)
		if err != nil {
			return "", err
		}
		blocks, err := parseAll(blocked)
		*st = stage{space: NewSpace()}
		st.pool = st.space.SetPool("pool", windows, blocks)
		return "", err
	case "hold":
		r, err := ParseRange(rest)
		st.space.Assign(r, OwnerID(1+len(st.taken)))
		st.taken = append(st.taken, r)
		return "", err
	case "take":
		return st.take(rest)
	case "exact":
		r, err := ParseRange(rest)
		if err != nil {
			return "", err
		}
		st.taken = append(st.taken, r)
		return st.told(st.pool.AllocateExact(r, OwnerID(len(st.taken))))
	case "free":
		for i, r := range st.taken {
			if rest == r.Text() || rest == "every other" && i%2 == 0 {
				st.space.Release(r, OwnerID(i+1))
			}
		}
		return "", nil
	case "stats":
		s := st.pool.Stats()
		return fmt.Sprintf("%d/%d/%d", s.Total, s.Allocated, s.Available), nil
	case "runs":
		free := Subtract(st.pool.Window(), st.pool.blocked)
		for owned := range st.space.OwnedIn(mustParse("0.0.0.0/0")) {
			free = Subtract(free, []Range{owned.Range})
		}
		if s := st.pool.Stats(); s.FreeRuns != len(free) || s.Available != Total(free) {
			return "", fmt.Errorf("statistics %+v do not count %v", s, free)
		}
		return ranged(free), nil
	case "fragmentation":
		s := st.pool.Stats()
		return fmt.Sprintf("%d %d of %d", s.Fragmentation, s.LargestFree, s.Available), nil
	}
	return "", fmt.Errorf("unknown command %q", verb)
}

// take plays "8" and, for a sequence that must come without a gap, "5 8 x10".
func (st *stage) take(counts string) (string, error) {
	counts, repeat, many := strings.Cut(counts, " x")
	times := 1
	if many {
		times, _ = strconv.Atoi(repeat)
	}
	var got []Range
	for range times {
		for _, count := range strings.Fields(counts) {
			n, err := strconv.ParseInt(count, 10, 64)
			if err != nil {
				return "", err
			}
			preview, previewErr := st.pool.Preview(n, BestFit)
			r, err := st.pool.Allocate(n, BestFit, OwnerID(1+len(st.taken)))
			if preview != r || fmt.Sprint(previewErr) != fmt.Sprint(err) {
				return "", fmt.Errorf("preview answers %v, %v; allocate %v, %v", preview, previewErr, r, err)
			}
			if err != nil {
				return st.told(err)
			}
			st.taken, got = append(st.taken, r), append(got, r)
		}
	}
	if len(got) == 1 {
		return got[0].Text(), nil
	}
	return ranged(Union(got)), nil
}

// told is an error of the pool in the words of the vectors.
func (st *stage) told(err error) (string, error) {
	var exhausted *ExhaustedError
	var outside *OutsideError
	var blocked *BlockedError
	var owned *OwnedError
	switch {
	case err == nil:
		return "ok", nil
	case errors.As(err, &exhausted) && errors.Is(err, ErrExhausted):
		return fmt.Sprint("exhausted ", exhausted.Requested, exhausted.Available, exhausted.Largest), nil
	case errors.As(err, &outside) && len(outside.Straddled()) > 1:
		return "spans " + ranged(outside.Straddled()), nil
	case errors.As(err, &outside):
		return "outside " + ranged(outside.Window), nil
	case errors.As(err, &blocked):
		return "blocked " + blocked.Range.String(), nil
	case errors.As(err, &owned):
		return "owned " + owned.Range.String(), nil
	}
	return "", err
}

func parseAll(texts string) ([]Range, error) {
	var ranges []Range
	for _, text := range strings.Fields(texts) {
		r, err := ParseRange(text)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func ranged(ranges []Range) string {
	if len(ranges) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprint(ranges), "[]")
}

func mustParse(text string) Range {
	r, err := ParseRange(text)
	if err != nil {
		panic(err)
	}
	return r
}
