package addressfile

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of a file and of its parts.
const (
	MaxBytes   = 64 << 20
	MaxRows    = 200_000
	MaxColumns = 512
	MaxCell    = 16 << 10 // bytes
)

// line is a row of a file, not yet assigned to columns.
type line struct {
	row   int // number of the first line of the row in the file
	cells []string
}

// readAll reads a file of at most MaxBytes and returns UTF-8 without byte order mark.
func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > MaxBytes:
		return nil, fmt.Errorf("the file has more than %d bytes: split it", MaxBytes)
	}
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		data = decodeUTF16(data[2:], binary.LittleEndian)
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		data = decodeUTF16(data[2:], binary.BigEndian)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if utf8.Valid(data) {
		return data, nil
	}
	row := 1
	for text := range bytes.Lines(data) {
		if !utf8.Valid(text) {
			break
		}
		row++
	}
	return nil, Fault{Row: row, Text: "is not UTF-8: save the file as UTF-8"}
}

// decodeUTF16 returns UTF-16 text, as Windows writes it, as UTF-8. An odd last byte is dropped.
func decodeUTF16(data []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, len(data)/2)
	for n := range units {
		units[n] = order.Uint16(data[2*n:])
	}
	return []byte(string(utf16.Decode(units)))
}

// readLines splits a file into rows. Left out are empty rows, and the lines that Excel (sep=;) and PowerShell (#TYPE) write before the header.
func readLines(data []byte) ([]line, error) {
	r := csv.NewReader(bytes.NewReader(data))
	r.Comma, r.FieldsPerRecord = findSeparator(data), -1
	var lines []line
	for {
		cells, err := r.Read()
		var broken *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return lines, nil
		case errors.As(err, &broken):
			return nil, Fault{Row: broken.StartLine, Text: fmt.Sprintf("cannot be read, at line %d, character %d: %v", broken.Line, broken.Column, broken.Err)}
		case err != nil:
			return nil, err
		}
		row, _ := r.FieldPos(0)
		if len(lines) == 0 && (strings.HasPrefix(cells[0], "sep=") || strings.HasPrefix(cells[0], "#TYPE")) || strings.TrimSpace(strings.Join(cells, "")) == "" {
			continue
		}
		switch {
		case len(lines) == MaxRows+1:
			return nil, Fault{Row: row, Text: fmt.Sprintf("is beyond %d rows: split the file", MaxRows)}
		case len(cells) > MaxColumns:
			return nil, Fault{Row: row, Text: fmt.Sprintf("has %d cells, %d at most", len(cells), MaxColumns)}
		}
		for n, cell := range cells {
			if len(cell) > MaxCell {
				return nil, Fault{Row: row, Column: fmt.Sprint(n + 1), Text: fmt.Sprintf("has %d bytes, %d at most: a quotation mark may be missing", len(cell), MaxCell)}
			}
		}
		lines = append(lines, line{row, cells})
	}
}

// findSeparator returns the separator of the cells: the separator in a line sep=, else the most frequent of comma, semicolon and tab in the header.
func findSeparator(data []byte) rune {
	best, most := ',', 0
	for header := range bytes.Lines(data) {
		if text := string(header); strings.TrimSpace(text) == "" || strings.HasPrefix(text, "#TYPE") {
			continue
		} else if rest, ok := strings.CutPrefix(strings.TrimSpace(text), "sep="); ok && len(rest) == 1 && strings.Contains(",;\t", rest) {
			return rune(rest[0])
		}
		counts, quoted := map[rune]int{}, false
		for _, c := range string(header) {
			if c == '"' {
				quoted = !quoted
			} else if !quoted {
				counts[c]++
			}
		}
		for _, c := range []rune{',', ';', '\t'} {
			if counts[c] > most {
				best, most = c, counts[c]
			}
		}
		break
	}
	return best
}

// Fault is the reason why a row or a cell cannot be read.
type Fault struct {
	Row    int
	Column string // heading; "" for a fault of the whole row
	Text   string
}

func (f Fault) Error() string {
	if f.Column == "" {
		return fmt.Sprintf("row %d %s", f.Row, f.Text)
	}
	return fmt.Sprintf("row %d, column %q: %s", f.Row, Shorten(f.Column), f.Text)
}

// Faults lists the faults of a file, in row order.
type Faults []Fault

// maxFaults bounds the faults in an error.
const maxFaults = 20

func (f Faults) Error() string {
	var text strings.Builder
	for n, fault := range f {
		if n == maxFaults {
			fmt.Fprintf(&text, "\n  and %d more", len(f)-n)
			break
		}
		text.WriteString("\n  " + fault.Error())
	}
	if len(f) == 1 {
		return strings.TrimPrefix(text.String(), "\n  ")
	}
	return fmt.Sprintf("%d rows cannot be read:%s", len(f), text.String())
}
