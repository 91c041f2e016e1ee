package readme

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// block is a fenced block of a document.
type block struct {
	line     int // of its first line of text
	language string
	lines    []string
}

// document is a parsed Markdown file.
type document struct {
	blocks  []block
	anchors map[string]bool
	links   []link
	code    []string // inline code
}

type link struct {
	line   int
	target string
}

var (
	fence      = regexp.MustCompile("^ *```(.*)$")
	heading    = regexp.MustCompile(`^#+ +(.*)$`)
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inlineCode = regexp.MustCompile("`([^`]+)`")
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// parse reads the blocks, headings, links and inline code of a Markdown text. Code
// without a fence is an error: nothing would execute it.
func parse(text string) (document, error) {
	d := document{anchors: map[string]bool{}}
	var open *block
	var prose strings.Builder
	blank := true
	for i, line := range strings.Split(text, "\n") {
		if m := fence.FindStringSubmatch(line); m != nil {
			switch {
			case open != nil:
				d.blocks, open = append(d.blocks, *open), nil
			case m[1] == "" || line[0] == ' ':
				return d, fmt.Errorf("line %d: a fence without a language, or an indented one", i+1)
			default:
				open = &block{line: i + 2, language: m[1]}
			}
			blank = false
			continue
		}
		if open != nil {
			open.lines = append(open.lines, line)
			continue
		}
		if blank && strings.HasPrefix(line, "    ") {
			return d, fmt.Errorf("line %d: code without a fence", i+1)
		}
		blank = line == ""
		if m := heading.FindStringSubmatch(line); m != nil {
			d.anchors[slug(m[1])] = true
		}
		for _, m := range linkTarget.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
			d.links = append(d.links, link{i + 1, m[1]})
		}
		prose.WriteString(line + "\n")
	}
	if open != nil {
		return d, fmt.Errorf("line %d: the block has no end", open.line)
	}
	for _, m := range inlineCode.FindAllStringSubmatch(prose.String(), -1) {
		d.code = append(d.code, strings.ReplaceAll(m[1], "\n", " "))
	}
	return d, nil
}

// slug returns the anchor of a heading.
func slug(heading string) string {
	return strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// command is a command of a block with the output that the document shows for it.
type command struct {
	line  int
	text  string
	shown []string
}

// commands divides a block into its commands.
func (b block) commands() (all []command, err error) {
	for i := 0; i < len(b.lines); i++ {
		line := b.lines[i]
		if b.language == "console" {
			text, isCommand := strings.CutPrefix(line, "$ ")
			if !isCommand {
				if len(all) == 0 {
					return nil, fmt.Errorf("line %d: output without a command", b.line+i)
				}
				last := &all[len(all)-1]
				last.shown = append(last.shown, line)
				continue
			}
			line = text
		}
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c := command{line: b.line + i, text: line}
		for strings.HasSuffix(c.text, `\`) && i+1 < len(b.lines) {
			i++
			c.text = strings.TrimSuffix(c.text, `\`) + strings.TrimSpace(b.lines[i])
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("line %d: a block without commands", b.line)
	}
	return all, nil
}

// file returns the name of the file that a YAML block shows.
func (b block) file() (name string, err error) {
	if len(b.lines) > 0 {
		name = strings.TrimPrefix(b.lines[0], "# ")
	}
	if !regexp.MustCompile(`^[a-z0-9-]+\.yaml$`).MatchString(name) {
		return "", fmt.Errorf("line %d: the first line of a YAML block is not a comment with a file name", b.line)
	}
	return name, nil
}

// fails reports whether the document shows that the command fails.
func (c command) fails() bool {
	for _, line := range c.shown {
		if strings.HasPrefix(line, "Error") || strings.HasPrefix(line, "error") || strings.Contains(line, " is invalid: ") {
			return true
		}
	}
	return false
}

var spaces = regexp.MustCompile(` +`)

// matches reports whether the output of a command is what the document shows.
func matches(shown []string, output string) bool {
	var pattern strings.Builder
	for _, line := range shown {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		parts := strings.Split(normal(line), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern.WriteString(strings.Join(parts, `[^\n]*`) + `\n`)
	}
	var text strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(output, "\n"), "\n") {
		text.WriteString(normal(line) + "\n")
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(text.String())
}

func normal(line string) string { return strings.TrimRight(spaces.ReplaceAllString(line, " "), " ") }

func TestParse(t *testing.T) {
	d, err := parse("# A `b` (c): d\n[x](y.md#z) `[n](no)` `--flag`\n\n```sh\na \\\n  b\n# note\nc\n```\n```console\n$ d\nError: e\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	if !d.anchors["a-b-c-d"] || len(d.links) != 1 || d.links[0].target != "y.md#z" || !cmp.Equal(d.code, []string{"b", "[n](no)", "--flag"}) {
		t.Errorf("parsed %+v", d)
	}
	var got []command
	for _, b := range d.blocks {
		commands, err := b.commands()
		if err != nil {
			t.Error(err)
		}
		got = append(got, commands...)
	}
	want := []command{{line: 5, text: "a b"}, {line: 8, text: "c"}, {line: 11, text: "d", shown: []string{"Error: e"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(command{})); diff != "" {
		t.Error(diff)
	}
	if got[1].fails() || !got[2].fails() {
		t.Error("which command fails is not recognised")
	}
}

func TestParse_Invalid(t *testing.T) {
	for name, text := range map[string]string{
		"fence without language": "```\na\n```\n",
		"indented fence":         " ```sh\na\n ```\n",
		"code without a fence":   "a\n\n    make b\n",
		"block without an end":   "```sh\na\n",
		"output before command":  "```console\nb\n$ a\n```\n",
		"empty block":            "```sh\n# a\n```\n",
		"file without a name":    "```yaml\na: b\n```\n",
	} {
		d, err := parse(text)
		for _, b := range d.blocks {
			if b.language == "yaml" {
				_, err = b.file()
			} else {
				_, err = b.commands()
			}
		}
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestMatches(t *testing.T) {
	for name, test := range map[string]struct {
		shown, output string
		want          bool
	}{
		"equal":              {"a\nb", "a\nb\n", true},
		"without line end":   {"a", "a", true},
		"spaces":             {"a b", "a    b  \n", true},
		"part of a line":     {"a…c", "abbc\n", true},
		"lines":              {"a\n…\nc", "a\nb\nb\nc\n", true},
		"no lines":           {"a\n…\nc", "a\nc\n", true},
		"other":              {"a", "b\n", false},
		"more":               {"a", "a\nb\n", false},
		"less":               {"a\nb", "a\n", false},
		"part over two":      {"a…c", "a\nc\n", false},
		"pattern is literal": {"a.c", "abc\n", false},
	} {
		if got := matches(strings.Split(test.shown, "\n"), test.output); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
