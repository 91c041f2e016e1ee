package state

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// Only the methods of a part of State, and its constructor, read the fields of the part.
func TestParts_OnlyTheirMethodsReadTheirFields(t *testing.T) {
	files := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var sources []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, source)
	}
	info := types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}} // the types of this package are enough
	pkg, _ := config.Check("state", files, sources, &info)

	part := map[types.Object]string{} // field of a part -> name of the part's type
	state := pkg.Scope().Lookup("State").Type().Underlying().(*types.Struct)
	for i := range state.NumFields() {
		named, ok := state.Field(i).Type().(*types.Named)
		if !ok || named.Obj().Pkg() != pkg || named.Obj().Name() == "addressesInUse" { // inuse.go is not a part yet
			continue
		}
		if fields, ok := named.Underlying().(*types.Struct); ok {
			for j := range fields.NumFields() {
				part[fields.Field(j)] = named.Obj().Name()
			}
		}
	}
	if len(part) == 0 {
		t.Fatal("State has no parts")
	}
	for _, source := range sources {
		for _, decl := range source.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			of := receiverType(f)
			ast.Inspect(f, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				if selection := info.Selections[selector]; ok && selection != nil {
					if owner := part[selection.Obj()]; owner != "" && owner != of && f.Name.Name != constructor(owner) {
						t.Errorf("%s: %s reads %s of %s", files.Position(n.Pos()), f.Name.Name, selector.Sel.Name, owner)
					}
				}
				return true
			})
		}
	}
}

// constructor returns the name of the function that makes a part of a type.
func constructor(part string) string { return "new" + strings.ToUpper(part[:1]) + part[1:] }

// receiverType returns the name of a method's type; "" for a function.
func receiverType(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	return of.(*ast.Ident).Name
}

// noImports is an importer of no package.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }
