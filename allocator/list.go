package allocator

import "slices"

// list is a sequence of items in an order its owner keeps, cut into blocks so
// that inserting and removing move few of them: two binary searches find an
// item, and a million items cost one slice of some ten thousand blocks. Items
// lie side by side without pointers, which is what keeps a held range small.
//
// A B-tree would do as well. A million items of 40 bytes take 41 bytes each when
// they come in order and 58 when they do not; in github.com/tidwall/btree they
// took 79 and 70, and every operation was slower.
type list[T any] struct {
	blocks [][]T // none is empty
	spare  []T   // a block out of use, for the next split
	count  int
}

// blockSize bounds the items of a block. Moving half a block costs about as
// much as finding it. With 152 a block of pieces (40 bytes each) and one of runs
// (32) fill the allocator's size classes of 6,144 and 4,864 bytes.
const blockSize = 152

// place points at an item, or behind the last one. A change to the list makes
// every place stale.
type place struct{ block, at int }

// seek finds the first item that is not before what is sought; before must be
// true for a (possibly empty) head of the list and false for the rest.
func (l *list[T]) seek(before func(*T) bool) place {
	low, high := 0, len(l.blocks)
	for low < high {
		if mid := int(uint(low+high) / 2); before(&l.blocks[mid][0]) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return place{}
	}
	block := l.blocks[low-1]
	from, to := 1, len(block)
	for from < to {
		if mid := int(uint(from+to) / 2); before(&block[mid]) {
			from = mid + 1
		} else {
			to = mid
		}
	}
	if from == len(block) {
		return place{low, 0}
	}
	return place{low - 1, from}
}

// get is the item at a place, nil behind the last one.
func (l *list[T]) get(p place) *T {
	if p.block == len(l.blocks) {
		return nil
	}
	return &l.blocks[p.block][p.at]
}

// ahead is the item in front of a place, nil at the first.
func (l *list[T]) ahead(p place) *T {
	switch {
	case p.at > 0:
		return &l.blocks[p.block][p.at-1]
	case p.block > 0:
		block := l.blocks[p.block-1]
		return &block[len(block)-1]
	}
	return nil
}

func (l *list[T]) last() *T { return l.ahead(place{len(l.blocks), 0}) }

// skip is the place n items behind p, or the end.
func (l *list[T]) skip(p place, n int) place {
	for p.at += n; p.block < len(l.blocks) && p.at >= len(l.blocks[p.block]); p.block++ {
		p.at -= len(l.blocks[p.block])
	}
	if p.block == len(l.blocks) {
		p.at = 0
	}
	return p
}

// rank is how many items are in front of p.
func (l *list[T]) rank(p place) int {
	n := p.at
	for _, block := range l.blocks[:p.block] {
		n += len(block)
	}
	return n
}

// insert puts x in front of the item at p.
func (l *list[T]) insert(p place, x T) {
	l.count++
	if len(l.blocks) == 0 {
		l.blocks = append(l.blocks, append(l.takeSpare(0), x))
		return
	}
	if p.at == 0 && p.block > 0 && (p.block == len(l.blocks) || len(l.blocks[p.block-1]) < blockSize) {
		p = place{p.block - 1, len(l.blocks[p.block-1])} // as well the end of the block before
	}
	if len(l.blocks[p.block]) == blockSize {
		p = l.split(p)
	}
	l.blocks[p.block] = slices.Insert(l.blocks[p.block], p.at, x)
}

// split makes room at p in a full block and returns where p is then. At either
// end of the block that is a new one: of items that come in order, the halves of
// a split would stay halves.
func (l *list[T]) split(p place) place {
	switch p.at {
	case 0:
		l.blocks = slices.Insert(l.blocks, p.block, l.takeSpare(blockSize))
		return p
	case blockSize:
		l.blocks = slices.Insert(l.blocks, p.block+1, l.takeSpare(blockSize))
		return place{p.block + 1, 0}
	}
	const half = blockSize / 2
	block := l.blocks[p.block]
	l.blocks = slices.Insert(l.blocks, p.block+1, append(l.takeSpare(blockSize), block[half:]...))
	l.blocks[p.block] = block[:half]
	if p.at > half {
		return place{p.block + 1, p.at - half}
	}
	return p
}

func (l *list[T]) takeSpare(capacity int) []T {
	block := l.spare
	l.spare = nil
	if block == nil {
		block = make([]T, 0, capacity)
	}
	return block
}

// remove drops the item at p. Two neighbours that fit into one block with some
// room left become one.
func (l *list[T]) remove(p place) {
	l.count--
	l.blocks[p.block] = slices.Delete(l.blocks[p.block], p.at, p.at+1)
	switch {
	case len(l.blocks[p.block]) == 0:
		l.drop(p.block)
	case l.canJoin(p.block):
		l.join(p.block)
	case l.canJoin(p.block - 1):
		l.join(p.block - 1)
	}
}

func (l *list[T]) canJoin(i int) bool {
	return i >= 0 && i+1 < len(l.blocks) && len(l.blocks[i])+len(l.blocks[i+1]) <= blockSize*7/8
}

func (l *list[T]) join(i int) {
	l.blocks[i] = append(l.blocks[i], l.blocks[i+1]...)
	l.drop(i + 1)
}

func (l *list[T]) drop(i int) {
	l.spare = l.blocks[i][:0]
	l.blocks = slices.Delete(l.blocks, i, i+1)
}

// load replaces what the list has. Blocks are left an eighth empty, so that the
// first changes find room.
func (l *list[T]) load(items []T) {
	*l = list[T]{count: len(items)}
	for part := range slices.Chunk(items, blockSize*7/8) {
		room := blockSize
		if len(items) == len(part) {
			room = len(part)
		}
		l.blocks = append(l.blocks, append(make([]T, 0, room), part...))
	}
}
