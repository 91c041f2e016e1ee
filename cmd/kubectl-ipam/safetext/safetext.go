// Package safetext makes text that authors of objects and files write harmless for the
// programs that show it: descriptions, names in annotations, messages in a status, cells
// of an imported file.
//
//	terminal      Writer, Line   a control character becomes visible: \x1b
//	HTML page     Text           the same; line breaks and tabs stay
//	JSON          JSON           a control character is written as \u001b: the value is the same
//	CSV           CSVWriter      a cell that a spreadsheet would compute as a formula gets the prefix ', which UnguardCell removes
//
// An output writes all its text through one of them, so that a new column or message
// needs no escaping of its own.
package safetext

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// isUnsafe reports whether a terminal or a browser can obey a character instead of
// showing it: control characters, line separators of Unicode, and characters that change
// the direction of text, so that a reader sees another order of characters.
func isUnsafe(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r < 0xa0:
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// Line returns text for one line of an output: each unsafe character is visible, line
// breaks included.
func Line(text string) string { return visible(text, "") }

// Text returns text of several lines: each unsafe character except line breaks and tabs
// is visible.
func Text(text string) string { return visible(text, "\n\t") }

// visible writes the unsafe characters of a text, except those in keep, and bytes that
// are not UTF-8, as escape sequences of Go.
func visible(text, keep string) string {
	isShown := func(r rune) bool { return !isUnsafe(r) || strings.ContainsRune(keep, r) }
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !isShown(r) }) < 0 {
		return text
	}
	var out strings.Builder
	for n := 0; n < len(text); {
		r, size := utf8.DecodeRuneInString(text[n:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[n])
		case isShown(r):
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		n += size
	}
	return out.String()
}

// Writer writes text to a terminal, or to a file that a person may print to a terminal.
// Each Write is whole characters.
type Writer struct{ Out io.Writer }

func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.Out, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// JSON returns a JSON document with the same values, in which unsafe characters are
// escape sequences. encoding/json escapes only a part of them.
func JSON(document []byte) []byte {
	var out strings.Builder
	for _, r := range string(document) {
		if isUnsafe(r) && r != '\n' && r != '\r' && r != '\t' { // a valid document has these characters only in strings
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return []byte(out.String())
}

// formulaStarts are the characters with which a spreadsheet begins to compute a cell, as
// OWASP lists them (CSV injection).
const formulaStarts = "=+-@\t\r\n＝＋－＠"

// isFormula reports whether a spreadsheet may compute a cell. Leading quotation marks '
// do not count, so that GuardCell can be undone. A negative number is no formula: numbers
// of the columns stay numbers for programs.
func isFormula(cell string) bool {
	cell = strings.TrimLeft(cell, "'")
	return cell != "" && strings.ContainsRune(formulaStarts, []rune(cell)[0]) && !isNegative(cell)
}

func isNegative(cell string) bool {
	digits, ok := strings.CutPrefix(cell, "-")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// GuardCell returns the cell of a CSV file for a value: with the prefix ' if a
// spreadsheet would compute the value.
func GuardCell(value string) string {
	if isFormula(value) {
		return "'" + value
	}
	return value
}

// UnguardCell returns the value for a cell: the inverse of GuardCell.
func UnguardCell(cell string) string {
	if value, ok := strings.CutPrefix(cell, "'"); ok && isFormula(value) {
		return value
	}
	return cell
}

// CSVWriter writes CSV with guarded cells.
type CSVWriter struct{ *csv.Writer }

// NewCSVWriter returns a CSVWriter. The caller flushes it.
func NewCSVWriter(w io.Writer) CSVWriter { return CSVWriter{csv.NewWriter(w)} }

// Write writes a row.
func (w CSVWriter) Write(row []string) error {
	guarded := make([]string, len(row))
	for n, value := range row {
		guarded[n] = GuardCell(value)
	}
	return w.Writer.Write(guarded)
}

// WriteAll writes rows and flushes.
func (w CSVWriter) WriteAll(rows [][]string) error {
	for _, row := range rows {
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
