package allocator

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// bitmapPool does what a Pool does, with a bitmap: a bit per address, which is set if the
// address has an owner. It is the opponent of the lists of a Pool in BenchmarkBitmap, so
// it is as fast as a bitmap gets: words of 64 bits, summaries over 64 words at each
// level, and a summary of the lengths of free runs for the best fit. It has one IPv4 or
// IPv6 range without blocked parts, of 64 to 2^32 addresses.
type bitmapPool struct {
	base        number
	size        int
	words       []uint64
	taken, free bitSearch
	// lengths[0] has a number per block of 64 words. Bit c is set if a free run of length
	// c+1 begins in the block; bit 63 stands for 64 and more. A set bit may be stale: the
	// search that finds no such run clears the bit. lengths[k+1] is the union of 64
	// numbers of lengths[k].
	lengths [][]uint64
	// owners has an array of owners per block, allocated with the first owner in the
	// block.
	owners [][]OwnerID
}

const (
	blockBits = 12 // of 64 words
	longRun   = 64
)

// bitSearch finds set bits of words, or clear bits if flip is all ones. A bit of
// summary[0] is set for each word with such a bit, of summary[1] for each such word of
// summary[0], and so on.
type bitSearch struct {
	words   []uint64
	flip    uint64
	summary [][]uint64
}

func newBitSearch(words []uint64, flip uint64) bitSearch {
	s := bitSearch{words: words, flip: flip}
	for n := len(words); n > 1; n = len(s.summary[len(s.summary)-1]) {
		s.summary = append(s.summary, make([]uint64, (n+63)/64))
	}
	for w := range words {
		s.update(w)
	}
	return s
}

func (s *bitSearch) level(k int) ([]uint64, uint64) {
	if k == 0 {
		return s.words, s.flip
	}
	return s.summary[k-1], 0
}

// update corrects the summaries after a change of word w.
func (s *bitSearch) update(w int) {
	found := s.words[w]^s.flip != 0
	for _, row := range s.summary {
		before := row[w>>6] != 0
		if found {
			row[w>>6] |= 1 << (w & 63)
		} else {
			row[w>>6] &^= 1 << (w & 63)
		}
		if found = row[w>>6] != 0; found == before {
			return
		}
		w >>= 6
	}
}

// next returns the first bit from i on, or -1.
func (s *bitSearch) next(i int) int {
	for k := 0; k <= len(s.summary); k++ {
		row, flip := s.level(k)
		if w := i >> 6; w < len(row) {
			if rest := (row[w] ^ flip) >> (i & 63) << (i & 63); rest != 0 {
				return s.descend(k, w<<6+bits.TrailingZeros64(rest), bits.TrailingZeros64)
			}
		}
		i = i>>6 + 1
	}
	return -1
}

// previous returns the last bit up to i, or -1.
func (s *bitSearch) previous(i int) int {
	for k := 0; k <= len(s.summary) && i >= 0; k++ {
		row, flip := s.level(k)
		w := i >> 6
		if rest := (row[w] ^ flip) << (63 - i&63) >> (63 - i&63); rest != 0 {
			return s.descend(k, w<<6+bits.Len64(rest)-1, func(x uint64) int { return bits.Len64(x) - 1 })
		}
		i = w - 1
	}
	return -1
}

func (s *bitSearch) descend(k, i int, choose func(uint64) int) int {
	for ; k > 0; k-- {
		row, flip := s.level(k - 1)
		i = i<<6 + choose(row[i]^flip)
	}
	return i
}

func newBitmapPool(window Range) *bitmapPool {
	size := int(window.Size())
	p := &bitmapPool{base: numberOf(window.First), size: size, words: make([]uint64, size/64)}
	p.taken, p.free = newBitSearch(p.words, 0), newBitSearch(p.words, ^uint64(0))
	blocks := (size-1)>>blockBits + 1
	p.owners = make([][]OwnerID, blocks)
	for n := blocks; ; n = (n + 63) / 64 {
		p.lengths = append(p.lengths, make([]uint64, n))
		if n == 1 {
			break
		}
	}
	p.note(0, size)
	return p
}

// Allocate is Pool.Allocate with BestFit.
func (p *bitmapPool) Allocate(n int64, h OwnerID) (Range, error) {
	first := p.bestFit(int(n))
	if first < 0 {
		return Range{}, &ExhaustedError{Requested: n}
	}
	p.take(first, int(n), h)
	return headOf(p.base.plus(number{lo: uint64(first)}), number{lo: uint64(n)}).asRange(), nil
}

// Release is Space.Release.
func (p *bitmapPool) Release(r Range, h OwnerID) {
	if !r.IsValid() {
		return
	}
	first := int(numberOf(r.First).minus(p.base).lo)
	end := first + int(r.Size())
	for i := first; i < end; {
		next := i
		for ; next < end && p.ownerOf(next) == h; next++ {
			p.owners[next>>blockBits][next&(1<<blockBits-1)] = 0
		}
		if next > i {
			p.mark(i, next-i, false)
			start := p.taken.previous(i) + 1
			p.note(start, p.endOf(i)-start)
		}
		i = next + 1
	}
}

func (p *bitmapPool) ownerOf(i int) OwnerID {
	if block := p.owners[i>>blockBits]; block != nil {
		return block[i&(1<<blockBits-1)]
	}
	return 0
}

// take makes h the owner of n free addresses.
func (p *bitmapPool) take(first, n int, h OwnerID) {
	start, end := p.taken.previous(first)+1, p.endOf(first)
	p.mark(first, n, true)
	for i := first; i < first+n; i++ {
		block := &p.owners[i>>blockBits]
		if *block == nil {
			*block = make([]OwnerID, min(p.size, 1<<blockBits))
		}
		(*block)[i&(1<<blockBits-1)] = h
	}
	p.note(start, first-start)
	p.note(first+n, end-first-n)
}

// mark sets or clears the bits of n addresses.
func (p *bitmapPool) mark(first, n int, taken bool) {
	for n > 0 {
		w, at := first>>6, first&63
		count := min(n, 64-at)
		mask := ^uint64(0) >> (64 - count) << at
		if taken {
			p.words[w] |= mask
		} else {
			p.words[w] &^= mask
		}
		p.taken.update(w)
		p.free.update(w)
		first, n = first+count, n-count
	}
}

// endOf returns the end of the free run that contains i, exclusive.
func (p *bitmapPool) endOf(i int) int {
	if end := p.taken.next(i); end >= 0 {
		return end
	}
	return p.size
}

// note records a free run in lengths.
func (p *bitmapPool) note(start, length int) {
	if length == 0 {
		return
	}
	i, class := start>>blockBits, lengthClass(length)
	for _, row := range p.lengths {
		if row[i]&class != 0 {
			return
		}
		row[i] |= class
		i >>= 6
	}
}

func lengthClass(length int) uint64 { return 1 << (min(length, longRun) - 1) }

// forget removes a length from a block without a run of this length.
func (p *bitmapPool) forget(block int, class uint64) {
	p.lengths[0][block] &^= class
	for k := range p.lengths[1:] {
		block >>= 6
		for _, lengths := range p.lengths[k][block<<6 : min(block<<6+64, len(p.lengths[k]))] {
			if lengths&class != 0 {
				return
			}
		}
		p.lengths[k+1][block] &^= class
	}
}

// bestFit returns the lowest of the shortest free runs of n addresses and more, or -1.
func (p *bitmapPool) bestFit(n int) int {
	wanted := ^uint64(0) << (min(n, longRun) - 1)
	for {
		candidates := p.lengths[len(p.lengths)-1][0] & wanted
		if candidates == 0 {
			return -1
		}
		class := candidates & -candidates
		if class == lengthClass(longRun) {
			return p.shortestLongRun(n)
		}
		block := p.nextBlock(0, class)
		if first, _ := p.shortestIn(block, bits.TrailingZeros64(class)+1, class); first >= 0 {
			return first
		}
		p.forget(block, class)
	}
}

func (p *bitmapPool) shortestLongRun(n int) int {
	class := lengthClass(longRun)
	best, shortest := -1, p.size+1
	for block := p.nextBlock(0, class); block >= 0; block = p.nextBlock(block+1, class) {
		if first, _ := p.shortestIn(block, longRun, class); first < 0 {
			p.forget(block, class)
		} else if first, length := p.shortestIn(block, n, class); first >= 0 && length < shortest {
			best, shortest = first, length
		}
	}
	return best
}

// shortestIn returns the lowest of the shortest free runs of a length class that begin in
// a block and have n addresses and more, or -1.
func (p *bitmapPool) shortestIn(block, n int, class uint64) (first, length int) {
	from, to := block<<blockBits, min((block+1)<<blockBits, p.size)
	if from > 0 && p.words[from>>6-1]>>63 == 0 {
		from = p.endOf(from) // the run began in an earlier block
	}
	first = -1
	for start := from; start < to; {
		if start = p.free.next(start); start < 0 || start >= to {
			break
		}
		end := p.endOf(start)
		if l := end - start; l >= n && lengthClass(l) == class && (first < 0 || l < length) {
			if first, length = start, l; l == n {
				break
			}
		}
		start = end
	}
	return first, length
}

// nextBlock returns the first block from i on that has a length, or -1.
func (p *bitmapPool) nextBlock(i int, class uint64) int {
	for k := 0; k < len(p.lengths); k++ {
		row := p.lengths[k]
		for end := min(i|63+1, len(row)); i < end; i++ {
			if row[i]&class != 0 {
				for ; k > 0; k-- {
					i <<= 6
					for p.lengths[k-1][i]&class == 0 {
						i++
					}
				}
				return i
			}
		}
		if i&63 != 0 { // the end of the row
			return -1
		}
		i >>= 6
	}
	return -1
}

// TestBitmapPool_MatchesThePool compares the opponent of BenchmarkBitmap with a Pool: it
// does the same work.
func TestBitmapPool_MatchesThePool(t *testing.T) {
	for _, window := range []string{"10.0.0.0/26", "10.0.0.0/24", "10.0.0.0/18", "10.0.0.0/13", "2001:db8::/112"} {
		t.Run(window, func(t *testing.T) {
			s := NewSpace()
			pool := s.SetPool("pool", []Range{mustParse(window)}, nil)
			opponent := newBitmapPool(mustParse(window))
			source := rand.New(rand.NewPCG(8, 8))
			largest := max(8, pool.Stats().Total/400)
			type owned struct {
				Range
				OwnerID
			}
			var all []owned
			for h := OwnerID(1); h <= 5000; h++ {
				n := 1 + source.Int64N(8)
				if source.IntN(3) == 0 {
					n = 1 + source.Int64N(largest)
				}
				want, err := pool.Allocate(n, BestFit, h)
				got, opponentErr := opponent.Allocate(n, h)
				if want != got || (err == nil) != (opponentErr == nil) {
					t.Fatalf("allocation %d, of %d addresses: the pool returns %v, %v, the bitmap %v, %v", h, n, want, err, got, opponentErr)
				}
				if err == nil {
					all = append(all, owned{want, h})
				}
				// Fill, half empty, fill again: runs of all lengths come and go.
				for len(all) > 0 && (err != nil || h%1000 > 600) && source.IntN(4) > 0 {
					i := source.IntN(len(all))
					s.Release(all[i].Range, all[i].OwnerID)
					opponent.Release(all[i].Range, all[i].OwnerID)
					all = slices.Delete(all, i, i+1)
				}
			}
		})
	}
}
