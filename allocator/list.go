package allocator

import "slices"

// list is a sequence of items in an order kept by its owner, cut into blocks so that
// inserting and removing move few items: two binary searches find an item, and a million
// items need a slice of about ten thousand blocks. Items are stored side by side without
// pointers, which keeps an owned range small.
//
// A B-tree would do as well. A million items of 40 bytes take 41 bytes each if inserted
// in order and 58 otherwise; in github.com/tidwall/btree they took 79 and 70, and every
// operation was slower.
type list[T any] struct {
	blocks [][]T // none is empty
	spare  []T   // an unused block, for the next split
	count  int
}

// blockSize bounds the items of a block. Moving half a block costs about as
// much as finding it. With 152 a block of pieces (40 bytes each) and one of runs
// (32) fill the allocator's size classes of 6,144 and 4,864 bytes.
const blockSize = 152

// place is the position of an item, or the end. A change of the list invalidates every
// place.
type place struct{ block, at int }

// findPlace returns the first item for which before returns false; before must be true
// for a (possibly empty) head of the list and false for the rest.
func (l *list[T]) findPlace(before func(*T) bool) place {
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

// itemAt returns the item at a place, nil at the end.
func (l *list[T]) itemAt(p place) *T {
	if p.block == len(l.blocks) {
		return nil
	}
	return &l.blocks[p.block][p.at]
}

// itemBefore returns the item before a place, nil at the first.
func (l *list[T]) itemBefore(p place) *T {
	switch {
	case p.at > 0:
		return &l.blocks[p.block][p.at-1]
	case p.block > 0:
		block := l.blocks[p.block-1]
		return &block[len(block)-1]
	}
	return nil
}

func (l *list[T]) lastItem() *T { return l.itemBefore(place{len(l.blocks), 0}) }

// placeAfter returns the place n items after p, or the end.
func (l *list[T]) placeAfter(p place, n int) place {
	for p.at += n; p.block < len(l.blocks) && p.at >= len(l.blocks[p.block]); p.block++ {
		p.at -= len(l.blocks[p.block])
	}
	if p.block == len(l.blocks) {
		p.at = 0
	}
	return p
}

// countBefore returns the number of items before p.
func (l *list[T]) countBefore(p place) int {
	n := p.at
	for _, block := range l.blocks[:p.block] {
		n += len(block)
	}
	return n
}

// insertAt inserts x before the item at p.
func (l *list[T]) insertAt(p place, x T) {
	l.count++
	if len(l.blocks) == 0 {
		l.blocks = append(l.blocks, append(l.reuseBlock(0), x))
		return
	}
	if p.at == 0 && p.block > 0 && (p.block == len(l.blocks) || len(l.blocks[p.block-1]) < blockSize) {
		p = place{p.block - 1, len(l.blocks[p.block-1])} // as well the end of the block before
	}
	if len(l.blocks[p.block]) == blockSize {
		p = l.splitBlock(p)
	}
	l.blocks[p.block] = slices.Insert(l.blocks[p.block], p.at, x)
}

// splitBlock makes room at p in a full block and returns the new position of p. At either
// end of the block it adds an empty block: with items in order, the halves of a split
// would stay half full.
func (l *list[T]) splitBlock(p place) place {
	switch p.at {
	case 0:
		l.blocks = slices.Insert(l.blocks, p.block, l.reuseBlock(blockSize))
		return p
	case blockSize:
		l.blocks = slices.Insert(l.blocks, p.block+1, l.reuseBlock(blockSize))
		return place{p.block + 1, 0}
	}
	const half = blockSize / 2
	block := l.blocks[p.block]
	l.blocks = slices.Insert(l.blocks, p.block+1, append(l.reuseBlock(blockSize), block[half:]...))
	l.blocks[p.block] = block[:half]
	if p.at > half {
		return place{p.block + 1, p.at - half}
	}
	return p
}

func (l *list[T]) reuseBlock(capacity int) []T {
	block := l.spare
	l.spare = nil
	if block == nil {
		block = make([]T, 0, capacity)
	}
	return block
}

// removeAt removes the item at p. It joins two neighbouring blocks if both fit into one
// block with some room left.
func (l *list[T]) removeAt(p place) {
	l.count--
	l.blocks[p.block] = slices.Delete(l.blocks[p.block], p.at, p.at+1)
	switch {
	case len(l.blocks[p.block]) == 0:
		l.dropBlock(p.block)
	case l.canJoin(p.block):
		l.joinBlocks(p.block)
	case l.canJoin(p.block - 1):
		l.joinBlocks(p.block - 1)
	}
}

func (l *list[T]) canJoin(i int) bool {
	return i >= 0 && i+1 < len(l.blocks) && len(l.blocks[i])+len(l.blocks[i+1]) <= blockSize*7/8
}

func (l *list[T]) joinBlocks(i int) {
	l.blocks[i] = append(l.blocks[i], l.blocks[i+1]...)
	l.dropBlock(i + 1)
}

func (l *list[T]) dropBlock(i int) {
	l.spare = l.blocks[i][:0]
	l.blocks = slices.Delete(l.blocks, i, i+1)
}

// replaceAll replaces the content. It leaves blocks an eighth empty, so that the first
// changes find room.
func (l *list[T]) replaceAll(items []T) {
	*l = list[T]{count: len(items)}
	for part := range slices.Chunk(items, blockSize*7/8) {
		room := blockSize
		if len(items) == len(part) {
			room = len(part)
		}
		l.blocks = append(l.blocks, append(make([]T, 0, room), part...))
	}
}
