package kinds_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator/kinds"
)

// TestKindsAreDescribedByTheTableAlone finds what the compiler does not find when a kind
// is added: outside of allocator/kinds, a type switch over kinds, and a switch or a
// literal that lists several resources of kinds.
func TestKindsAreDescribedByTheTableAlone(t *testing.T) {
	files := 0
	for _, folder := range []string{"allocator", "cmd", "reconcilers", "webhooks"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" {
				return err
			}
			if filepath.ToSlash(path) == "../../allocator/kinds" {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			files++
			found, err := findLists(path, nil)
			for _, line := range found {
				t.Errorf("%s: give kinds.Kind a part that says this, see DESIGN.md", line)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 300 {
		t.Errorf("only %d files were read", files)
	}
}

func TestFindLists(t *testing.T) {
	const head = "package p\nimport (\n\tb \"butlerlabs.dev/ipam/allocator/kinds/butler\"\n\t\"butlerlabs.dev/ipam/allocator/kinds/metal3\"\n" +
		"\tbutlerv1 \"butlerlabs.dev/ipam/api/butler/v1alpha1\"\n)\n"
	for name, tc := range map[string]struct {
		code string
		want int
	}{
		"type switch over kinds":        {"func f(o any) { switch o.(type) { case string: case *butlerv1.NetworkPool: } }", 1},
		"type switch with a variable":   {"func f(o any) { switch p := o.(type) { case *butlerv1.IPAllocation, error: _ = p } }", 1},
		"type switch over other types":  {"func f(o any) { switch o.(type) { case error: case *butlerv1.TenantCluster: } }", 0},
		"switch over resources":         {"func f(r string) { switch r { case b.ResourceNetworkPool: case metal3.ResourceIPPool: } }", 1},
		"switch that names one":         {"func f(r string) { switch r { case b.ResourceNetworkPool: default: } }", 0},
		"map by resource":               {"var m = map[string]int{b.ResourceNetworkPool: 1, metal3.ResourceIPPool: 2}", 1},
		"list of resources":             {"var l = []string{b.ResourceNetworkPool, metal3.ResourceIPPool}", 1},
		"list of calls":                 {"var l = []T{f(b.ResourceNetworkPool), f(metal3.ResourceIPPool)}", 1},
		"struct with two resources":     {"var s = T{Claims: b.ResourceIPAllocation, Pools: b.ResourceNetworkPool}", 0},
		"the name of a type in a value": {"var p = []any{butlerv1.GroupVersion}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := findLists("p.go", head+tc.code)
			if err != nil || len(found) != tc.want {
				t.Errorf("want %d, got %v, %v", tc.want, found, err)
			}
		})
	}
}

// findLists returns a line for each place of a file that lists kinds. source is as in
// parser.ParseFile.
func findLists(path string, source any) (found []string, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	imports := map[string]string{} // name in the file -> path
	for _, i := range file.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		name := from[strings.LastIndex(from, "/")+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = from
	}
	report := func(n ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s: %s", set.Position(n.Pos()), what))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSwitchStmt:
			for _, e := range casesOf(n.Body) {
				if pointer, ok := e.(*ast.StarExpr); ok && isKind(selected(pointer.X, imports)) {
					report(n, "type switch over kinds")
					break
				}
			}
		case *ast.SwitchStmt:
			if countResources(casesOf(n.Body), imports) > 1 {
				report(n, "switch over resources of kinds")
			}
		case *ast.CompositeLit:
			switch n.Type.(type) {
			case *ast.ArrayType, *ast.MapType:
				if countResources(n.Elts, imports) > 1 {
					report(n, "list of resources of kinds")
				}
			}
		}
		return true
	})
	return found, nil
}

func casesOf(body *ast.BlockStmt) (list []ast.Expr) {
	for _, s := range body.List {
		list = append(list, s.(*ast.CaseClause).List...)
	}
	return list
}

// selected returns the import path and the name of a selector of a package.
func selected(e ast.Expr, imports map[string]string) (path, name string) {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	from, ok := s.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return imports[from.Name], s.Sel.Name
}

// isKind reports whether a name of a package is the Go type of a kind.
func isKind(path, name string) bool {
	for _, k := range kinds.All {
		if of := reflect.TypeOf(k.New()).Elem(); of.PkgPath() == path && of.Name() == name {
			return true
		}
	}
	return false
}

// countResources counts the expressions with a constant such as
// butler.ResourceNetworkPool.
func countResources(list []ast.Expr, imports map[string]string) (n int) {
	for _, e := range list {
		found := false
		ast.Inspect(e, func(part ast.Node) bool {
			if s, ok := part.(*ast.SelectorExpr); ok {
				path, name := selected(s, imports)
				found = found || strings.HasPrefix(path, "butlerlabs.dev/ipam/allocator/kinds/") && strings.HasPrefix(name, "Resource")
			}
			return true
		})
		if found {
			n++
		}
	}
	return n
}
