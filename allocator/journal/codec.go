package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// format is the version of the encoding. A replica does not hold a journal whose format it does not know.
const format = 1

// ErrFormat says that the journal was written by a newer release, which counts things that this one does not.
var ErrFormat = errors.New("journal format unknown to this release")

// errCorrupt says that a journal of a known format does not parse. Nothing is guessed from it.
var errCorrupt = errors.New("journal is corrupt")

// Encode gives the bytes of a record. About 30 bytes go to a line of an IPv4 range.
//
//	format  flags  strings…  seen (string, resourceVersion)…  lines…
//	line:   token(12) space kind namespace nameHash(8) shape [stored uid] ranges…
//	shape:  2 × number of ranges, + 1 where stored and uid follow
//	range:  4 first(4) size-1, or 16 first(16) last(16)
//
// Strings that repeat (spaces, kinds, namespaces) stand once, in a table, and are named by their index.
func (r Record) Encode() []byte {
	var table []string
	index := map[string]uint64{}
	ref := func(s string) uint64 {
		i, ok := index[s]
		if !ok {
			i = uint64(len(table))
			index[s] = i
			table = append(table, s)
		}
		return i
	}
	var body []byte
	kinds := slices.Sorted(maps.Keys(r.Seen))
	body = binary.AppendUvarint(body, uint64(len(kinds)))
	for _, k := range kinds {
		body = binary.AppendUvarint(body, ref(k))
		body = binary.AppendUvarint(body, r.Seen[k])
	}
	body = binary.AppendUvarint(body, uint64(len(r.Lines)))
	for i := range r.Lines {
		body = appendLine(body, &r.Lines[i], ref)
	}

	out := []byte{format, 0}
	if r.Quarantine {
		out[1] |= 1
	}
	out = binary.AppendUvarint(out, uint64(len(table)))
	for _, s := range table {
		out = appendString(out, s)
	}
	return append(out, body...)
}

func appendLine(b []byte, l *Line, ref func(string) uint64) []byte {
	b = append(b, l.Token[:]...)
	b = binary.AppendUvarint(b, ref(l.Space))
	b = binary.AppendUvarint(b, ref(l.Kind))
	b = binary.AppendUvarint(b, ref(l.Namespace))
	b = binary.BigEndian.AppendUint64(b, l.NameHash)
	shape := uint64(len(l.Ranges)) << 1
	if l.Stored != "" {
		b = binary.AppendUvarint(b, shape|1)
		b = appendString(b, l.Stored)
		b = appendString(b, l.UID)
	} else {
		b = binary.AppendUvarint(b, shape)
	}
	for _, r := range l.Ranges {
		first := r.First.AsSlice()
		b = append(b, byte(len(first)))
		b = append(b, first...)
		if r.First.Is4() {
			b = binary.AppendUvarint(b, uint64(number4(r.Last)-number4(r.First)))
		} else {
			b = append(b, r.Last.AsSlice()...)
		}
	}
	return b
}

func number4(a netip.Addr) uint32 {
	four := a.As4()
	return binary.BigEndian.Uint32(four[:])
}

// Size is what l takes of a record at most, in bytes, besides the strings that it shares with other lines.
func (l *Line) Size() int {
	n := len(l.Token) + 2 + 1 + 2 + 8 + 1
	if l.Stored != "" {
		n += 2 + len(l.Stored) + 1 + len(l.UID)
	}
	for _, r := range l.Ranges {
		if r.First.Is4() {
			n += 1 + 4 + max(1, (bits.Len32(number4(r.Last)-number4(r.First))+6)/7)
		} else {
			n += 1 + 16 + 16
		}
	}
	return n
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decode reads what Encode wrote. Errors wrap ErrFormat for a format of a later release.
func Decode(b []byte) (Record, error) {
	var r Record
	if len(b) < 2 {
		return r, fmt.Errorf("%w: %d bytes", errCorrupt, len(b))
	}
	if b[0] != format {
		return r, fmt.Errorf("%w: format %d, known is %d", ErrFormat, b[0], format)
	}
	r.Quarantine = b[1]&1 != 0
	d := &decoder{rest: b[2:]}
	d.table = make([]string, d.count(1))
	for i := range d.table {
		d.table[i] = d.text()
	}
	kinds := d.count(2)
	r.Seen = make(map[string]uint64, kinds)
	for range kinds {
		k := d.ref()
		r.Seen[k] = d.uvarint()
	}
	r.Lines = make([]Line, d.count(24))
	for i := range r.Lines {
		r.Lines[i] = d.line()
	}
	if d.err == nil && len(d.rest) > 0 {
		d.fail("trailing bytes")
	}
	if d.err != nil {
		return Record{}, d.err
	}
	return r, nil
}

// decoder reads a buffer front to back. After the first error every read gives a zero value.
type decoder struct {
	rest  []byte
	table []string
	err   error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s, %d bytes before its end", errCorrupt, what, len(d.rest))
	}
	d.rest = nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail("bad number")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// count reads the number of items that follow, each of at least the given bytes: memory stays within the input's measure.
func (d *decoder) count(least int) int {
	n := d.uvarint()
	if n > uint64(len(d.rest)/least) {
		d.fail("count beyond the end")
		return 0
	}
	return int(n)
}

func (d *decoder) bytes(n int) []byte {
	if n > len(d.rest) {
		d.fail("cut short")
		return make([]byte, min(n, 16))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail("text beyond the end")
		return ""
	}
	return string(d.bytes(int(n)))
}

func (d *decoder) ref() string {
	i := d.uvarint()
	if i >= uint64(len(d.table)) {
		d.fail("no such string")
		return ""
	}
	return d.table[i]
}

func (d *decoder) line() Line {
	var l Line
	copy(l.Token[:], d.bytes(len(l.Token)))
	l.Space, l.Kind, l.Namespace = d.ref(), d.ref(), d.ref()
	l.NameHash = binary.BigEndian.Uint64(d.bytes(8))
	shape := d.uvarint()
	if shape&1 != 0 {
		if l.Stored, l.UID = d.text(), d.text(); l.Stored == "" {
			d.fail("a stored object without a name")
		}
	}
	if shape>>1 > uint64(len(d.rest)/6) {
		d.fail("ranges beyond the end")
		return l
	}
	l.Ranges = make([]allocator.Range, shape>>1)
	for i := range l.Ranges {
		var first, last netip.Addr
		switch size := d.bytes(1)[0]; size {
		case 4:
			first = netip.AddrFrom4([4]byte(d.bytes(4)))
			more := d.uvarint()
			if more > uint64(^number4(first)) {
				d.fail("range beyond the last address")
				return l
			}
			last = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, number4(first)+uint32(more))))
		case 16:
			first, last = netip.AddrFrom16([16]byte(d.bytes(16))), netip.AddrFrom16([16]byte(d.bytes(16)))
		default:
			d.fail("address neither IPv4 nor IPv6")
			return l
		}
		r, err := allocator.NewRange(first, last)
		if err != nil && d.err == nil {
			d.fail(err.Error())
			return l
		}
		l.Ranges[i] = r
	}
	return l
}
