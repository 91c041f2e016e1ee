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

// format is the version of the encoding. A replica does not lead with a journal whose
// format it does not know.
const format = 1

// ErrFormat reports that a newer release wrote the journal, in a format that this release
// cannot read.
var ErrFormat = errors.New("journal format unknown to this release")

// errCorrupt reports that a journal of a known format does not parse. No conclusion is
// drawn from a corrupt journal.
var errCorrupt = errors.New("journal is corrupt")

// Encode returns the bytes of a snapshot. An entry of one IPv4 range takes about 30
// bytes.
//
//	format  flags  strings…  applied (string, resourceVersion)…  entries…
//	entry:  token(12) routingDomain resource namespace nameHash(8) shape [storedName uid] ranges…
//	shape:  2 × number of ranges, + 1 if storedName and uid follow
//	range:  4 first(4) size-1, or 16 first(16) last(16)
//
// Repeated strings (routing domains, resources, namespaces) are stored once, in a table,
// and referenced by index.
func (r Snapshot) Encode() []byte {
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
	resources := slices.Sorted(maps.Keys(r.Applied))
	body = binary.AppendUvarint(body, uint64(len(resources)))
	for _, k := range resources {
		body = binary.AppendUvarint(body, ref(k))
		body = binary.AppendUvarint(body, r.Applied[k])
	}
	body = binary.AppendUvarint(body, uint64(len(r.Entries)))
	for i := range r.Entries {
		body = appendEntry(body, &r.Entries[i], ref)
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

func appendEntry(b []byte, e *Entry, ref func(string) uint64) []byte {
	b = append(b, e.Token[:]...)
	b = binary.AppendUvarint(b, ref(e.RoutingDomain))
	b = binary.AppendUvarint(b, ref(e.Resource))
	b = binary.AppendUvarint(b, ref(e.Namespace))
	b = binary.BigEndian.AppendUint64(b, e.NameHash)
	shape := uint64(len(e.Ranges)) << 1
	if e.StoredName != "" {
		b = binary.AppendUvarint(b, shape|1)
		b = appendString(b, e.StoredName)
		b = appendString(b, e.UID)
	} else {
		b = binary.AppendUvarint(b, shape)
	}
	for _, r := range e.Ranges {
		first := r.First.AsSlice()
		b = append(b, byte(len(first)))
		b = append(b, first...)
		if r.First.Is4() {
			b = binary.AppendUvarint(b, uint64(ipv4Number(r.Last)-ipv4Number(r.First)))
		} else {
			b = append(b, r.Last.AsSlice()...)
		}
	}
	return b
}

func ipv4Number(a netip.Addr) uint32 {
	four := a.As4()
	return binary.BigEndian.Uint32(four[:])
}

// EncodedSize returns how many bytes the entry adds to a snapshot at most, without the
// strings that it shares with other entries.
func (e *Entry) EncodedSize() int {
	n := len(e.Token) + 2 + 1 + 2 + 8 + 1
	if e.StoredName != "" {
		n += 2 + len(e.StoredName) + 1 + len(e.UID)
	}
	for _, r := range e.Ranges {
		if r.First.Is4() {
			n += 1 + 4 + max(1, (bits.Len32(ipv4Number(r.Last)-ipv4Number(r.First))+6)/7)
		} else {
			n += 1 + 16 + 16
		}
	}
	return n
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decode parses the result of Encode. Errors wrap ErrFormat for a format of a later
// release.
func Decode(b []byte) (Snapshot, error) {
	var r Snapshot
	if len(b) < 2 {
		return r, fmt.Errorf("%w: %d bytes", errCorrupt, len(b))
	}
	if b[0] != format {
		return r, fmt.Errorf("%w: format %d, known is %d", ErrFormat, b[0], format)
	}
	r.Quarantine = b[1]&1 != 0
	d := &decoder{rest: b[2:]}
	d.table = make([]string, d.readCount(1))
	for i := range d.table {
		d.table[i] = d.readText()
	}
	resources := d.readCount(2)
	r.Applied = make(map[string]uint64, resources)
	for range resources {
		k := d.readRef()
		r.Applied[k] = d.readUvarint()
	}
	r.Entries = make([]Entry, d.readCount(24))
	for i := range r.Entries {
		r.Entries[i] = d.readEntry()
	}
	if d.err == nil && len(d.rest) > 0 {
		d.setError("trailing bytes")
	}
	if d.err != nil {
		return Snapshot{}, d.err
	}
	return r, nil
}

// decoder reads a buffer from front to back. After the first error every read returns a
// zero value.
type decoder struct {
	rest  []byte
	table []string
	err   error
}

func (d *decoder) setError(fault string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s, %d bytes before the end", errCorrupt, fault, len(d.rest))
	}
	d.rest = nil
}

func (d *decoder) readUvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.setError("bad number")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// readCount reads a number of items, each encoded in at least the given number of bytes.
// Larger counts than the input can contain are an error, so that a corrupt count does not
// allocate memory.
func (d *decoder) readCount(least int) int {
	n := d.readUvarint()
	if n > uint64(len(d.rest)/least) {
		d.setError("count beyond the end")
		return 0
	}
	return int(n)
}

func (d *decoder) readBytes(n int) []byte {
	if n > len(d.rest) {
		d.setError("truncated")
		return make([]byte, min(n, 16))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) readText() string {
	n := d.readUvarint()
	if n > uint64(len(d.rest)) {
		d.setError("text beyond the end")
		return ""
	}
	return string(d.readBytes(int(n)))
}

func (d *decoder) readRef() string {
	i := d.readUvarint()
	if i >= uint64(len(d.table)) {
		d.setError("no such string")
		return ""
	}
	return d.table[i]
}

func (d *decoder) readEntry() Entry {
	var e Entry
	copy(e.Token[:], d.readBytes(len(e.Token)))
	e.RoutingDomain, e.Resource, e.Namespace = d.readRef(), d.readRef(), d.readRef()
	e.NameHash = binary.BigEndian.Uint64(d.readBytes(8))
	shape := d.readUvarint()
	if shape&1 != 0 {
		if e.StoredName, e.UID = d.readText(), d.readText(); e.StoredName == "" {
			d.setError("a stored object without a name")
		}
	}
	if shape>>1 > uint64(len(d.rest)/6) {
		d.setError("ranges beyond the end")
		return e
	}
	e.Ranges = make([]allocator.Range, shape>>1)
	for i := range e.Ranges {
		var first, last netip.Addr
		switch size := d.readBytes(1)[0]; size {
		case 4:
			first = netip.AddrFrom4([4]byte(d.readBytes(4)))
			more := d.readUvarint()
			if more > uint64(^ipv4Number(first)) {
				d.setError("range beyond the last address")
				return e
			}
			last = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, ipv4Number(first)+uint32(more))))
		case 16:
			first, last = netip.AddrFrom16([16]byte(d.readBytes(16))), netip.AddrFrom16([16]byte(d.readBytes(16)))
		default:
			d.setError("address neither IPv4 nor IPv6")
			return e
		}
		r, err := allocator.NewRange(first, last)
		if err != nil && d.err == nil {
			d.setError(err.Error())
			return e
		}
		e.Ranges[i] = r
	}
	return e
}
