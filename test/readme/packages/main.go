// Command packages generates the table of test packages in test/README.md. It writes the
// first sentence of each package comment between two marks.
//
//	packages test/README.md
package main

import (
	"errors"
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: packages FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

var table = regexp.MustCompile(`(?s)<!-- packages -->\n.*<!-- end of packages -->\n`)

func run(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !table.Match(text) {
		return fmt.Errorf("%s has no place for the table: a line <!-- packages --> and a line <!-- end of packages -->", file)
	}
	var out strings.Builder
	out.WriteString("<!-- packages -->\n| Directory | Content |\n| --- | --- |\n")
	dir := filepath.Dir(file)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || path == dir {
			return err
		}
		if entry.Name() == "testdata" {
			return fs.SkipDir
		}
		summary, err := synopsis(path)
		if err != nil || summary == "" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		fmt.Fprintf(&out, "| `%s` | %s |\n", filepath.ToSlash(name), strings.ReplaceAll(summary, "|", `\|`))
		return err
	})
	if err != nil {
		return err
	}
	out.WriteString("<!-- end of packages -->\n")
	return os.WriteFile(file, table.ReplaceAllLiteral(text, []byte(out.String())), 0o644)
}

// synopsis returns the first sentence of the package comment of a directory, without
// "Package name" or "Command name"; "" if the directory has no Go package. A package
// without a comment is an error.
func synopsis(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return "", err
	}
	var errs error
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		if parsed.Doc == nil {
			continue
		}
		words := strings.Fields(new(doc.Package).Synopsis(parsed.Doc.Text()))
		if len(words) < 3 {
			return "", fmt.Errorf("%s: the package comment is too short", file)
		}
		sentence := strings.Join(words[2:], " ")
		return strings.ToUpper(sentence[:1]) + sentence[1:], errs
	}
	return "", errors.Join(errs, fmt.Errorf("%s has no package comment", dir))
}
