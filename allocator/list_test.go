package allocator

import (
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func (l *list[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, block := range l.blocks {
			for _, x := range block {
				if !yield(x) {
					return
				}
			}
		}
	}
}

func checkList[T any](t *testing.T, l *list[T], ordered func(a, b T) bool) {
	t.Helper()
	items := slices.Collect(l.all())
	if len(items) != l.count {
		t.Errorf("list counts %d of %d items", l.count, len(items))
	}
	for i := 1; i < len(items); i++ {
		if !ordered(items[i-1], items[i]) {
			t.Errorf("items %d and %d are out of order: %v, %v", i-1, i, items[i-1], items[i])
		}
	}
	for i, block := range l.blocks {
		if len(block) == 0 || len(block) > blockSize {
			t.Errorf("block %d has %d items", i, len(block))
		}
	}
}

// TestList_KeepsItsItems grows and shrinks a list of some thousand items in
// several orders beside a plain slice.
func TestList_KeepsItsItems(t *testing.T) {
	next := map[string]func(source *rand.Rand, i int) int{
		"ascending":                   func(_ *rand.Rand, i int) int { return i },
		"descending":                  func(_ *rand.Rand, i int) int { return -i },
		"random":                      func(source *rand.Rand, _ int) int { return source.IntN(1 << 30) },
		"outwards":                    func(_ *rand.Rand, i int) int { return i * (1 - 2*(i%2)) },
		"inwards":                     func(_ *rand.Rand, i int) int { return (10000 - i) * (1 - 2*(i%2)) },
		"descending within ascending": func(_ *rand.Rand, i int) int { return i/500*1000 - i%500 },
	}
	for name, value := range next {
		t.Run(name, func(t *testing.T) {
			source := rand.New(rand.NewPCG(3, 3))
			var l list[int]
			var want []int
			check := func() {
				checkList(t, &l, func(a, b int) bool { return a < b })
				if diff := cmp.Diff(want, slices.Collect(l.all()), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("items (-want +got):\n%s", diff)
				}
			}
			seek := func(x int) place { return l.findPlace(func(y *int) bool { return *y < x }) }
			for i := range 5000 {
				x := value(source, i)
				at, found := slices.BinarySearch(want, x)
				if !found {
					want = slices.Insert(want, at, x)
					l.insertAt(seek(x), x)
				}
			}
			check()
			most := 2 * 5000 / blockSize
			if name == "ascending" || name == "descending" {
				most = 1 + 5000/blockSize
			}
			if len(l.blocks) > most {
				t.Errorf("the items fill %d blocks, want at most %d", len(l.blocks), most)
			}
			for i, x := range want {
				p := seek(x)
				if l.countBefore(p) != i || l.placeAfter(place{}, i) != p || *l.itemAt(p) != x || i > 0 && *l.itemBefore(p) != want[i-1] {
					t.Fatalf("item %d is not at its place", i)
				}
			}
			if end := l.placeAfter(place{}, len(want)); l.itemAt(end) != nil || l.itemBefore(end) != l.lastItem() || l.itemBefore(place{}) != nil {
				t.Error("the ends are not at their places")
			}
			for len(want) > 0 {
				at := source.IntN(len(want))
				l.removeAt(seek(want[at]))
				want = slices.Delete(want, at, at+1)
				if len(want)%1000 == 0 {
					check()
				}
				if most := 1 + len(want)*2/(blockSize*7/8); len(l.blocks) > most {
					t.Fatalf("%d items keep %d blocks", len(want), len(l.blocks))
				}
			}
			if len(l.blocks) != 0 {
				t.Error("an empty list has blocks")
			}
			want = slices.Sorted(func(yield func(int) bool) {
				for i := range 1000 {
					yield(i)
				}
			})
			l.replaceAll(want)
			check()
		})
	}
}
