package addressfile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
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

// readLines splits a file into rows. Left out are empty rows, comments, and the lines
// that Excel (sep=;) and PowerShell (#TYPE) write before the header.
func readLines(data []byte) ([]line, error) {
	separator := findSeparator(data)
	r := csv.NewReader(bytes.NewReader(unwrapFormulas(blankComments(data, separator), separator)))
	r.Comma, r.FieldsPerRecord = separator, -1
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
		if strings.TrimSpace(strings.Join(cells, "")) == "" || isCommentRow(cells) || len(lines) == 0 && isPreamble(cells) {
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
			if inner, ok := strings.CutPrefix(cell, `="`); ok && strings.HasSuffix(inner, `"`) { // ="10.1.2.3", quoted
				cells[n] = strings.TrimSuffix(inner, `"`)
			}
		}
		lines = append(lines, line{row, cells})
	}
}

// isPreamble reports whether a row before the header is no header: sep=; or a comment
// with separators. A header may begin with # too, as in "#IP,Name" and "#,IP,Name".
func isPreamble(cells []string) bool {
	first := strings.TrimSpace(cells[0])
	if strings.HasPrefix(first, "sep=") || strings.HasPrefix(first, "#TYPE") {
		return true
	}
	if !strings.HasPrefix(first, "#") || first == "#" {
		return false
	}
	_, _, err := detect([]line{{0, cells}}, "auto", nil)
	return err != nil
}

// isCommentRow reports whether the first cell of a row is a comment and the others are
// empty. A comment in a cell of another row is text of the row.
func isCommentRow(cells []string) bool {
	return strings.HasPrefix(strings.TrimSpace(cells[0]), "#") && strings.TrimSpace(strings.Join(cells[1:], "")) == ""
}

// blankComments replaces each line that is a comment, without separators and outside
// quoted cells, by an empty line: quotation marks in a comment have no meaning.
func blankComments(data []byte, separator rune) []byte {
	if !bytes.Contains(data, []byte("#")) {
		return data
	}
	var out bytes.Buffer
	quoted := false
	for text := range bytes.Lines(data) {
		if !quoted && bytes.HasPrefix(bytes.TrimSpace(text), []byte("#")) && !bytes.ContainsRune(text, separator) {
			if bytes.HasSuffix(text, []byte("\n")) {
				out.WriteByte('\n')
			}
			continue
		}
		if bytes.Count(text, []byte(`"`))%2 == 1 {
			quoted = !quoted
		}
		out.Write(text)
	}
	return out.Bytes()
}

// unwrapFormulas replaces cells such as ="10.1.2.3", with which programs keep Excel from
// changing a text, by quoted cells. A quoted cell cannot contain such a text, because
// quotation marks in it are doubled.
func unwrapFormulas(data []byte, separator rune) []byte {
	if !bytes.Contains(data, []byte(`="`)) {
		return data
	}
	s := regexp.QuoteMeta(string(separator))
	cell := regexp.MustCompile(`(?m)(^|` + s + `)="([^"\n` + s + `]+)"`)
	var out []byte
	at := 0
	for _, found := range cell.FindAllSubmatchIndex(data, -1) {
		end := found[1]
		if end < len(data) && data[end] != '\n' && rune(data[end]) != separator {
			continue
		}
		out = append(append(out, data[at:found[3]]...), data[found[4]-1:end]...)
		at = end
	}
	return append(out, data[at:]...)
}

// findSeparator returns the separator of the cells: the separator in a line sep=, else
// the most frequent of comma, semicolon and tab in the first line that is no comment.
func findSeparator(data []byte) rune {
	best, most := ',', 0
	for header := range bytes.Lines(data) {
		if rest, ok := strings.CutPrefix(strings.Trim(string(header), "\"\n"), "sep="); ok && len(rest) == 1 && strings.Contains(",;\t", rest) {
			return rune(rest[0])
		}
		text := strings.TrimSpace(string(header))
		if text == "" || len(text) > 1 && text[0] == '#' && !strings.ContainsRune(",;\t", rune(text[1])) {
			continue
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

// trimCell returns a cell without surrounding blanks, invisible characters of web pages
// included.
func trimCell(cell string) string {
	return strings.TrimFunc(cell, func(r rune) bool { return unicode.IsSpace(r) || isInvisible(r) })
}

// isInvisible reports whether a character has no width: zero width space and no-break
// space, word joiner, marks of direction.
func isInvisible(r rune) bool {
	return r == 0x200b || r == 0x2060 || r == 0xfeff || r == 0x200e || r == 0x200f
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
