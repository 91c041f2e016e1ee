package addressfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"butlerlabs.dev/ipam/allocator"
)

// readText reads a file of at most MaxBytes and returns the file as UTF-8 without byte
// order mark, with \n as line ends. JSON is YAML too.
func readText(r io.Reader, isYAML bool) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > MaxBytes:
		return nil, fmt.Errorf("the file has more than %d bytes: split it", MaxBytes)
	}
	if err := checkFileType(data, isYAML); err != nil {
		return nil, err
	}
	if order, mark := utf16Order(data); order != nil {
		data = decodeUTF16(data[mark:], order)
	}
	data = unifyLineEnds(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	if utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return data, nil
	}
	row := 1
	for text := range bytes.Lines(data) {
		if bytes.IndexByte(text, 0) >= 0 {
			return nil, Fault{Row: row, Text: "has a NUL character: the file is no text, or is damaged; export it again as CSV in UTF-8"}
		}
		if !utf8.Valid(text) {
			break
		}
		row++
	}
	return nil, Fault{Row: row, Text: `is not UTF-8: save the file as UTF-8, in Excel as "CSV UTF-8 (Comma delimited)"`}
}

// fileTypes lists files that are no text by their first bytes. A part, if any, is in the
// first 4 KiB.
var fileTypes = []struct{ start, part, what string }{
	{"PK\x03\x04", "mimetypeapplication/vnd.oasis.opendocument", "an OpenDocument spreadsheet (.ods)"},
	{"PK\x03\x04", "[Content_Types].xml", "an Excel workbook (.xlsx)"},
	{"PK\x03\x04", "xl/", "an Excel workbook (.xlsx)"},
	{"PK\x03\x04", "", "a ZIP archive, or an Excel workbook (.xlsx)"},
	{"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "", "an Excel workbook (.xls)"},
	{"\x1f\x8b", "", "compressed by gzip"},
	{"%PDF", "", "a PDF document"},
	{"\xff\xfe\x00\x00", "", "text in UTF-32"},
	{"\x00\x00\xfe\xff", "", "text in UTF-32"},
	{"<", "", "HTML or XML"},
	{"{", "", typeJSON},
	{"[", "", typeJSON},
}

const typeJSON = "JSON"

// checkFileType returns an error for a file that is not CSV or YAML, with a remedy.
func checkFileType(data []byte, isYAML bool) error {
	start := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), " \t\r\n")
	for _, t := range fileTypes {
		if t.what == typeJSON && isYAML {
			continue
		}
		if bytes.HasPrefix(start, []byte(t.start)) && bytes.Contains(start[:min(len(start), 4096)], []byte(t.part)) {
			return fmt.Errorf(`the file is %s: save or export the addresses as CSV in UTF-8 (in Excel: File, Save As, "CSV UTF-8 (Comma delimited)") and import that file`, t.what)
		}
	}
	return nil
}

// utf16Order returns the byte order of UTF-16 text and the length of its byte order mark;
// nil for other text. Text without a mark is UTF-16 if at least half of its characters
// are ASCII: every second byte is then zero, and none of the others.
func utf16Order(data []byte) (order binary.ByteOrder, mark int) {
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		return binary.LittleEndian, 2
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		return binary.BigEndian, 2
	}
	zeros, sample := [2]int{}, data[:min(len(data), 4096)]
	for n, b := range sample {
		if b == 0 {
			zeros[n%2]++
		}
	}
	switch half := len(sample) / 4; {
	case zeros[1] > half && zeros[0] == 0:
		return binary.LittleEndian, 0
	case zeros[0] > half && zeros[1] == 0:
		return binary.BigEndian, 0
	}
	return nil, 0
}

// decodeUTF16 returns UTF-16 text, as Windows writes it, as UTF-8. An odd last byte is
// dropped.
func decodeUTF16(data []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, len(data)/2)
	for n := range units {
		units[n] = order.Uint16(data[2*n:])
	}
	return bytes.TrimPrefix([]byte(string(utf16.Decode(units))), []byte("\ufeff"))
}

// lineEnds are characters with which some programs end lines, although CSV does not:
// vertical tab, form feed, record separator, next line, and the separators of lines and
// paragraphs of Unicode.
const lineEnds = "\v\f\x1e\u0085\u2028\u2029"

// unifyLineEnds replaces CRLF and CR, the line end of Excel for Mac, by LF. In a file
// that is one line otherwise, each of lineEnds is a line end.
func unifyLineEnds(data []byte) []byte {
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	if !bytes.Contains(bytes.TrimSpace(data), []byte("\n")) && bytes.ContainsAny(data, lineEnds) {
		for _, end := range lineEnds {
			data = bytes.ReplaceAll(data, []byte(string(end)), []byte("\n"))
		}
	}
	return data
}

// errNoRows is the error for a file with a header alone.
var errNoRows = errors.New("the file has a header and no rows: export it again with its rows, or save it with LF or CRLF as line ends")

// findLostRow returns a fault if a cell contains one of lineEnds and an address follows,
// where no column has addresses: the program that wrote the file ended a row there, and
// the address would be lost. columns is nil for a header.
func findLostRow(l line, columns []column) *Fault {
	ended := ""
	for n, cell := range l.cells {
		rest := ""
		if ended != "" && (n >= len(columns) || !columns[n].hasAddresses()) {
			rest = cell
		}
		if at := strings.IndexAny(cell, lineEnds); at >= 0 {
			r, size := utf8.DecodeRuneInString(cell[at:])
			ended, rest = fmt.Sprintf("U+%04X", r), cell[at+size:]
		}
		for _, text := range strings.FieldsFunc(rest, isListSeparator) {
			if isAddressText(text) {
				return &Fault{Row: l.row, Text: fmt.Sprintf("has the character %s before %q: a row ends with LF or CRLF; replace the character", ended, Shorten(text))}
			}
		}
	}
	return nil
}

// isAddressText reports whether a text is an address, a range or a network.
func isAddressText(text string) bool {
	_, err := allocator.ParseRange(text)
	return err == nil || isNetworkAddress(text)
}
