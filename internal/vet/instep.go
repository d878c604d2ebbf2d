package vet

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// inStep: all ranks of a communicator make the same collective calls in the same order.
var inStep = &analysis.Analyzer{
	Name: "mpiorder",
	Doc:  "report collective calls that not all ranks make, or not in the same order",
	Run: func(pass *analysis.Pass) (any, error) {
		eachBlock(pass, func(list []ast.Stmt) {
			for i, s := range list {
				switch s := s.(type) {
				case *ast.RangeStmt:
					overMap(pass, s)
				case *ast.IfStmt:
					byRank(pass, s, list[i+1:])
				}
			}
		})
		return nil, nil
	},
}

// overMap reports collective calls for each element of a map, whose order is another one at each rank.
func overMap(pass *analysis.Pass, loop *ast.RangeStmt) {
	t := pass.TypesInfo.TypeOf(loop.X)
	if t == nil {
		return
	}
	if _, ok := t.Underlying().(*types.Map); !ok || isBlank(loop.Key) && isBlank(loop.Value) {
		return
	}
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if f := callee(pass.TypesInfo, n); f != nil && operationOf(f) != "" {
				pass.Reportf(n.Pos(), "%s in a loop over a map: each rank has its own order of the elements, and all must "+
					"make the same calls in the same order; sort the keys", called(f))
			}
		}
		return true
	})
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return e == nil || ok && id.Name == "_"
}

// byRank reports collective calls that a condition on the rank keeps from others: they are in the branch of some ranks,
// and the other ranks make none of that operation. rest is what follows the statement.
func byRank(pass *analysis.Pass, s *ast.IfStmt, rest []ast.Stmt) {
	comm := rankIn(pass, s.Cond)
	if comm == nil {
		return
	}
	body, other := s.Body.List, []ast.Stmt(nil)
	switch e := s.Else.(type) {
	case *ast.BlockStmt:
		other = e.List
	case *ast.IfStmt:
		other = []ast.Stmt{e}
	}
	yes, no := callsOn(pass, comm, body), callsOn(pass, comm, other)
	switch after := callsOn(pass, comm, rest); { // which both make, unless one of them has left
	case ends(body) && !ends(other):
		maps.Copy(no, after)
	case ends(other) && !ends(body):
		maps.Copy(yes, after)
	}
	for _, side := range [][2]map[string]*made{{yes, no}, {no, yes}} {
		for _, op := range slices.Sorted(maps.Keys(side[0])) {
			if m := side[0][op]; side[1][op] == nil && m.call.Pos() < s.End() {
				pass.Reportf(m.call.Pos(), "%s depends on the rank in %s: the other ranks make no %s here, and all ranks of a "+
					"communicator must", called(m.f), comm.Name(), op)
			}
		}
	}
}

// made is a collective call in the source.
type made struct {
	call *ast.CallExpr
	f    *types.Func
}

// callsOn returns the first call of each collective operation on a communicator.
func callsOn(pass *analysis.Pass, comm types.Object, list []ast.Stmt) map[string]*made {
	found := map[string]*made{}
	for _, s := range list {
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.CallExpr:
				f := callee(pass.TypesInfo, n)
				if f == nil {
					return true
				}
				if op := operationOf(f); op != "" && found[op] == nil && on(pass, n, f) == comm {
					found[op] = &made{n, f}
				}
			}
			return true
		})
	}
	return found
}

// on is the communicator of a collective call, where a variable has it.
func on(pass *analysis.Pass, call *ast.CallExpr, f *types.Func) types.Object {
	if f.Signature().Recv() != nil {
		sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok {
			return nil
		}
		return object(pass.TypesInfo, sel.X)
	}
	if len(call.Args) == 0 {
		return nil
	}
	return object(pass.TypesInfo, call.Args[0])
}

// rankIn returns the communicator whose rank decides a condition, where a variable has it; nil: none does.
func rankIn(pass *analysis.Pass, cond ast.Expr) (comm types.Object) {
	ast.Inspect(cond, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f := callee(pass.TypesInfo, n); f != nil && called(f) == "Comm.Rank" {
				comm = on(pass, n, f)
			}
		case *ast.Ident:
			if v, ok := pass.TypesInfo.Uses[n].(*types.Var); ok && comm == nil {
				comm = rankOf(pass, v)
			}
		}
		return comm == nil
	})
	return comm
}

// rankOf returns the communicator whose rank a variable has from its definition on, as in me, n := c.Rank(), c.Size().
func rankOf(pass *analysis.Pass, v *types.Var) (comm types.Object) {
	for _, file := range pass.Files {
		if file.FileStart > v.Pos() || v.Pos() >= file.FileEnd {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || len(a.Lhs) != len(a.Rhs) {
				return true
			}
			for i, e := range a.Lhs {
				id, ok := e.(*ast.Ident)
				if !ok || pass.TypesInfo.Defs[id] != v {
					continue
				}
				if f := callee(pass.TypesInfo, a.Rhs[i]); f != nil && called(f) == "Comm.Rank" {
					comm = on(pass, ast.Unparen(a.Rhs[i]).(*ast.CallExpr), f)
				}
			}
			return true
		})
	}
	return comm
}

// ends reports whether the last of the statements leaves the function or the loop.
func ends(list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch s := list[len(list)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		switch f := ast.Unparen(call.Fun).(type) {
		case *ast.Ident:
			return f.Name == "panic"
		case *ast.SelectorExpr:
			return f.Sel.Name == "Exit" || strings.HasPrefix(f.Sel.Name, "Fatal") || f.Sel.Name == "Abort"
		}
	}
	return false
}
