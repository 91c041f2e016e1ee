package safetext_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

// hostile contains texts that a terminal, a browser or a spreadsheet would obey.
var hostile = []string{
	"\x1b]0;title\x07", "\x1b[31mred\x1b[0m", "over\rwritten", "\u009b31m", "\x7f", "\x00", "bell\a", "\b\b\b", "line\nbreak", "tab\t", "\u202eesrever", "\u2066x\u2069", "a\u2028b", "a\u0085b", "\x9b31m",
	"=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "'=1", "''=1", "-", "=", "'",
	"-5", "plain", "", "it's", "'quoted'", "Zürich ✓ 👩‍💻", `back\slash`,
}

// No unsafe character reaches a terminal; text without such characters is unchanged.
func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b]0;title\x07": `\x1b]0;title\x07`, "over\rwritten": `over\rwritten`, "\u009b31m": `\x9b31m`, "\x9b31m": `\x9b31m`, "\u202eesrever": `\u202eesrever`, "a\u2028b": `a\u2028b`,
		"line\nbreak": `line\nbreak`, "tab\t": `tab\t`, "\x7f": `\x7f`, "Zürich ✓ 👩‍💻": "Zürich ✓ 👩‍💻", `back\slash`: `back\slash`,
	} {
		if got := safetext.Line(text); got != want {
			t.Errorf("Line(%q) = %q, want %q", text, got, want)
		}
	}
	if got := safetext.Text("a\n\tb\r\x1b"); got != "a\n\tb\\r\\x1b" {
		t.Errorf("Text = %q", got)
	}
}

// Writer reports the number of bytes that the caller has written.
func TestWriter(t *testing.T) {
	for _, text := range hostile {
		var out bytes.Buffer
		if n, err := fmt.Fprint(safetext.Writer{Out: &out}, text); err != nil || n != len(text) || out.String() != safetext.Text(text) {
			t.Errorf("%q: wrote %q, %d bytes of %d: %v", text, out.String(), n, len(text), err)
		}
	}
}

// A JSON document contains no unsafe character, and the same values.
func TestJSON(t *testing.T) {
	for _, text := range hostile {
		text = strings.ToValidUTF8(text, "?")
		document, err := json.MarshalIndent(map[string]string{"text": text}, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		document = safetext.JSON(document)
		var back map[string]string
		if err := json.Unmarshal(document, &back); err != nil || back["text"] != text {
			t.Errorf("%q became %q: %v", text, back["text"], err)
		}
		if shown := safetext.Text(string(document)); shown != string(document) {
			t.Errorf("%q is unsafe in %q", text, document)
		}
	}
}

// No cell begins as a formula, and UnguardCell returns the value of each cell.
func TestCSVWriter(t *testing.T) {
	var out bytes.Buffer
	w := safetext.NewCSVWriter(&out)
	if err := w.WriteAll([][]string{hostile}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	for n, cell := range rows[0] {
		if cell != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(cell)[0]) && cell != "-5" {
			t.Errorf("cell %q begins as a formula", cell)
		}
		if want := strings.ReplaceAll(hostile[n], "\r\n", "\n"); safetext.UnguardCell(cell) != want {
			t.Errorf("cell %q has the value %q, want %q", cell, safetext.UnguardCell(cell), want)
		}
	}
	for _, value := range hostile {
		if got := safetext.UnguardCell(safetext.GuardCell(value)); got != value {
			t.Errorf("%q became %q", value, got)
		}
	}
	if plain := []string{"'", "it's", "'quoted'", "-5", "plain"}; !slices.Equal(plain, apply(plain, safetext.GuardCell)) {
		t.Errorf("GuardCell changes one of %q", plain)
	}
}

func apply(texts []string, f func(string) string) (changed []string) {
	for _, text := range texts {
		changed = append(changed, f(text))
	}
	return changed
}
