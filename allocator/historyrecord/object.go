package historyrecord

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// maxLines bounds the decompressed records of an AllocationHistory, in bytes. The manager
// writes no AllocationHistory beyond this bound.
const maxLines = 64 << 20

// ReadObject returns the records of an AllocationHistory.
func ReadObject(o *butlerv1.AllocationHistory) ([]Record, error) {
	lines, err := decompress(o.Spec.Records)
	if err == nil {
		var records []Record
		if records, err = readRecords(bytes.NewReader(lines)); err == nil {
			return records, nil
		}
	}
	return nil, fmt.Errorf("AllocationHistory %s/%s: spec.records: %w", o.Namespace, o.Name, err)
}

// AppendRecords appends the first n records to the compressed records of an
// AllocationHistory. n is the largest of len(records), len(records)/2, len(records)/4, …
// for which the result has at most limit bytes; 0 if the first record does not fit.
func AppendRecords(compressed []byte, records []Record, limit int) (all []byte, n int, err error) {
	lines, err := decompress(compressed)
	if err != nil {
		return nil, 0, err
	}
	for n = len(records); n > 0; n /= 2 {
		longer := bytes.Clone(lines)
		for _, r := range records[:n] {
			longer = r.appendLine(longer)
		}
		if all = compress(longer); len(all) <= limit && len(longer) <= maxLines {
			return all, n, nil
		}
	}
	return compressed, 0, nil
}

func compress(lines []byte) []byte {
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	_, _ = w.Write(lines) // to memory: never fails
	_ = w.Close()
	return buffer.Bytes()
}

func decompress(compressed []byte) ([]byte, error) {
	if len(compressed) == 0 {
		return nil, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	lines, err := io.ReadAll(io.LimitReader(r, maxLines+1))
	if len(lines) > maxLines {
		err = errors.Join(err, fmt.Errorf("more than %d bytes when decompressed", maxLines))
	}
	return lines, err
}
