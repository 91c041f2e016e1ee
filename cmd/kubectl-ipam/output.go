package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

// formats are the values of --output.
var formats = []string{"table", "wide", "json", "yaml", "csv", "name"}

// commandFormats lists the values of --output of the commands that do not take all
// formats.
var commandFormats = map[string][]string{
	"export": {"table", "csv", "yaml"}, "import": {"table", "wide", "json", "yaml"}, "ui": {"table"}, "version": {"table", "json", "yaml"},
	"plan": {"table", "wide", "json", "yaml"},
}

// formatsOf returns the values of --output that a command takes.
func formatsOf(cmd *cobra.Command) []string {
	some, limited := commandFormats[cmd.Name()]
	switch {
	case limited:
		return some
	case cmd.Name() == "fit" && !cmd.Flags().Changed("provider"): // one result, and not a list
		return []string{"table", "wide", "json", "yaml"}
	}
	return formats
}

// kubectlName returns the line of an object with -o name: arguments of kubectl get, with
// the namespace, because names are not unique across namespaces.
func kubectlName(o report.Object) string {
	text := strings.ToLower(o.Kind)
	for _, k := range append(kinds.Pools(), kinds.Claims()...) {
		if k.Name == o.Kind {
			text += "." + k.GroupVersionKind().Group
		}
	}
	if text += "/" + o.Name; o.Namespace != "" {
		text += " -n " + o.Namespace
	}
	return text
}

// column is a column of a table.
type column[T any] struct {
	name  string
	wide  bool // only with -o wide and -o csv
	value func(T) string
}

// csvColumn replaces a column in CSV, where numbers are decimal and times are in RFC
// 3339.
type csvColumn[T any] struct {
	name  string // of the replaced column
	title string // "" for name
	value func(T) string
}

// list is the output of a command: items as rows of a table, as JSON, YAML or CSV, or as
// names.
type list[T any] struct {
	kind    string // kind of the JSON document
	columns []column[T]
	csv     []csvColumn[T]
	name    func(T) string // line of an item with -o name
	items   []T
	empty   string // printed to stderr instead of a table without rows
}

// print prints a list in the format of the flags.
func (l list[T]) print(a *app) error {
	switch a.output {
	case "json", "yaml":
		return a.printDocument(report.NewList(l.kind, l.items))
	case "name":
		for _, item := range l.items {
			if _, err := fmt.Fprintln(a.out, l.name(item)); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		var text bytes.Buffer
		if err := l.printCSV(&text, !a.noHeaders); err != nil {
			return err
		}
		_, err := a.forPrograms().Write(text.Bytes())
		return err
	}
	if len(l.items) == 0 {
		_, err := fmt.Fprintln(a.err, l.empty)
		return err
	}
	return l.printTable(a.out, a.output == "wide", !a.noHeaders)
}

func (a *app) printDocument(d any) error {
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	text = safetext.JSON(text)
	if a.output == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(a.forPrograms(), strings.TrimSuffix(string(text), "\n"))
	return err
}

func (l list[T]) printCSV(out io.Writer, headers bool) error {
	l.columns = slices.Clone(l.columns)
	for n, c := range l.columns {
		for _, r := range l.csv {
			if r.name == c.name {
				l.columns[n].name, l.columns[n].value = cmp.Or(r.title, r.name), r.value
			}
		}
	}
	w := safetext.NewCSVWriter(out)
	if headers {
		if err := w.Write(l.cells(true, func(c column[T]) string { return strings.ToLower(c.name) })); err != nil {
			return err
		}
	}
	for _, item := range l.items {
		if err := w.Write(l.cells(true, func(c column[T]) string { return c.value(item) })); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

func (l list[T]) printTable(out io.Writer, wide, headers bool) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	row := func(cells []string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }
	if headers {
		row(l.cells(wide, func(c column[T]) string { return c.name }))
	}
	for _, item := range l.items {
		row(l.cells(wide, func(c column[T]) string { return dashed(c.value(item)) }))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (l list[T]) cells(wide bool, cell func(column[T]) string) (cells []string) {
	for _, c := range l.columns {
		if wide || !c.wide {
			cells = append(cells, cell(c))
		}
	}
	return cells
}

// dashed returns a text for a cell or a line of a table: "-" for an empty text, and
// visible control characters, line breaks included.
func dashed(text string) string {
	if text == "" {
		return "-"
	}
	return safetext.Line(text)
}
