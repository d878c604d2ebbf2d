package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

// inStep: all ranks of a communicator make the same collective calls in the same order.
var inStep = &analysis.Analyzer{
	Name: "mpiorder",
	Doc:  "report collective calls that not all ranks make, or not in the same order",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.RangeStmt:
					overMap(pass, n)
				case *ast.FuncDecl:
					if n.Body != nil {
						eachIf(pass, n.Body)
					}
				case *ast.FuncLit:
					eachIf(pass, n.Body)
				}
				return true
			})
		}
		return nil, nil
	},
}

// eachIf looks at the conditions of a function, and not at conditions of functions within it.
func eachIf(pass *analysis.Pass, body *ast.BlockStmt) {
	chained := map[ast.Node]bool{} // the if of else if, which is a part of the first one
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.IfStmt:
			chained[n.Else] = true
			if !chained[n] {
				byRank(pass, n, body)
			}
		case *ast.SwitchStmt:
			byCase(pass, n, body)
		}
		return true
	})
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
		case *ast.FuncLit, *ast.CaseClause:
			return false
		case *ast.BlockStmt:
			return n == loop.Body // others are executed for some elements: perhaps for one
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
// and the other ranks make none of that operation. body is the function's.
func byRank(pass *analysis.Pass, s *ast.IfStmt, body *ast.BlockStmt) {
	comm := rankIn(pass, s.Cond)
	if comm == nil {
		return
	}
	var other []ast.Stmt
	switch e := s.Else.(type) {
	case *ast.BlockStmt:
		other = e.List
	case *ast.IfStmt:
		other = []ast.Stmt{e}
	}
	branches := []branch{{list: s.Body.List, ends: ends(s.Body.List)}, {list: other, ends: ends(other)}}
	compare(pass, comm, branches, restOf(pass, s, types.ExprString(s.Cond), comm, body), "the other ranks make")
}

// byCase reports the same of the cases of a switch on the rank. Without default, ranks may be in none of the cases:
// that is certain only of a single case.
func byCase(pass *analysis.Pass, s *ast.SwitchStmt, body *ast.BlockStmt) {
	var comm types.Object
	if s.Tag != nil {
		if comm = rankIn(pass, s.Tag); comm == nil {
			return
		}
	}
	var branches []branch
	hasDefault := false
	for _, c := range s.Body.List {
		c := c.(*ast.CaseClause)
		if s.Tag == nil && c.List != nil {
			if len(c.List) > 1 {
				return
			}
			decides := rankIn(pass, c.List[0])
			if decides == nil || comm != nil && decides != comm {
				return
			}
			comm = decides
		}
		hasDefault = hasDefault || c.List == nil
		b := branch{list: c.Body, ends: ends(c.Body)}
		if n := len(c.Body); n > 0 {
			if j, ok := c.Body[n-1].(*ast.BranchStmt); ok {
				if j.Tok == token.FALLTHROUGH {
					return
				}
				b.ends = j.Tok != token.BREAK || j.Label != nil
			}
		}
		branches = append(branches, b)
	}
	if comm == nil {
		return
	}
	if !hasDefault && len(branches) == 1 {
		branches = append(branches, branch{})
	}
	compare(pass, comm, branches, restOf(pass, s, "", comm, body), "ranks of another case make")
}

// branch is the statements that some of the ranks execute.
type branch struct {
	list []ast.Stmt
	ends bool // they leave the function or the loop
}

// compare reports collective calls on a communicator that are in one branch, and that the ranks of another branch do
// not make. rest is what follows all of them.
func compare(pass *analysis.Pass, comm types.Object, branches []branch, rest side, others string) {
	sides := make([]side, len(branches))
	for i, b := range branches {
		sides[i] = sideOf(pass, comm, b.list)
	}
	for i, a := range sides {
		for _, op := range slices.Sorted(maps.Keys(a.calls)) {
			makesNone := func(j int) bool {
				goesOn := branches[i].ends && !branches[j].ends // to what follows, which the ranks of a do not reach
				return j != i && !sides[j].unsure && sides[j].calls[op] == nil &&
					!(goesOn && (rest.unsure || rest.calls[op] != nil))
			}
			if rest.byRank[op] || !slices.ContainsFunc(indices(len(sides)), makesNone) {
				continue
			}
			m := a.calls[op]
			pass.Reportf(m.call.Pos(), "%s depends on the rank in %s: %s no %s here, and all ranks of a "+
				"communicator must", called(m.f), comm.Name(), others, op)
		}
	}
}

func indices(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// side is what some of the ranks do.
type side struct {
	calls  map[string]*made
	unsure bool            // it may make calls in functions of the program
	byRank map[string]bool // of the rest: operations that other conditions on the rank have
}

func sideOf(pass *analysis.Pass, comm types.Object, list []ast.Stmt) side {
	found := side{calls: map[string]*made{}}
	for _, s := range list {
		found.look(pass, comm, s, nil)
	}
	return found
}

// restOf is what may be executed after s in a function: what follows, and the whole of a loop that s is in. condition
// is what s depends on.
func restOf(pass *analysis.Pass, s ast.Stmt, condition string, comm types.Object, body *ast.BlockStmt) side {
	from := s.End()
	rest := side{calls: map[string]*made{}, byRank: map[string]bool{}}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ForStmt, *ast.RangeStmt:
			if n.Pos() < s.Pos() && s.End() <= n.End() {
				from = min(from, n.Pos())
			}
		case *ast.IfStmt:
			around := n.Pos() <= s.Pos() && s.End() <= n.End()
			if !around && types.ExprString(n.Cond) != condition && rankIn(pass, n.Cond) == comm {
				for op := range sideOf(pass, comm, []ast.Stmt{n}).calls {
					rest.byRank[op] = true
				}
			}
		case *ast.SwitchStmt:
			if around := n.Pos() <= s.Pos() && s.End() <= n.End(); !around && onRank(pass, n, comm) {
				for op := range sideOf(pass, comm, []ast.Stmt{n}).calls {
					rest.byRank[op] = true
				}
			}
		}
		return true
	})
	rest.look(pass, comm, body, func(n ast.Node) bool { return n == s || n.End() <= from })
	return rest
}

// onRank reports whether a switch depends on the rank in a communicator.
func onRank(pass *analysis.Pass, s *ast.SwitchStmt, comm types.Object) bool {
	if s.Tag != nil {
		return rankIn(pass, s.Tag) == comm
	}
	return slices.ContainsFunc(s.Body.List, func(c ast.Stmt) bool {
		return slices.ContainsFunc(c.(*ast.CaseClause).List, func(e ast.Expr) bool { return rankIn(pass, e) == comm })
	})
}

// look notes the first call of each collective operation on a communicator, outside of what is skipped.
func (d *side) look(pass *analysis.Pass, comm types.Object, n ast.Node, skip func(ast.Node) bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil || skip != nil && skip(n) {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			f := callee(pass.TypesInfo, n)
			if f == nil {
				d.unsure = d.unsure || ofProgram(pass, n)
				return true
			}
			switch op, c := operationOf(f), on(pass, n, f); {
			case op == "":
			case c == nil:
				d.unsure = true // it may be this communicator
			case c == comm && d.calls[op] == nil:
				d.calls[op] = &made{n, f}
			}
		}
		return true
	})
}

// ofProgram reports whether a call may be that of a function that makes collective calls: one that is not of the
// standard library, or a variable.
func ofProgram(pass *analysis.Pass, call *ast.CallExpr) bool {
	if t := pass.TypesInfo.Types[call.Fun]; t.IsType() || t.IsBuiltin() {
		return false
	}
	f := typeutil.StaticCallee(pass.TypesInfo, call)
	if f == nil || f.Pkg() == nil {
		m := typeutil.Callee(pass.TypesInfo, call) // err.Error() has no package
		return m == nil || m.Pkg() != nil
	}
	first := func(path string) string { before, _, _ := strings.Cut(path, "/"); return before }
	path := first(f.Pkg().Path())
	return strings.Contains(path, ".") || path == first(pass.Pkg.Path())
}

// made is a collective call in the source.
type made struct {
	call *ast.CallExpr
	f    *types.Func
}

// on is the communicator of a collective call, where a variable has it.
func on(pass *analysis.Pass, call *ast.CallExpr, f *types.Func) types.Object {
	if f.Signature().Recv() != nil {
		sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok {
			return nil
		}
		return commOf(pass, sel.X)
	}
	if len(call.Args) == 0 {
		return nil
	}
	return commOf(pass, call.Args[0])
}

// commOf is the variable that has a communicator, or has what WithContext made of it: c of c.WithContext(ctx), and of t
// after t := c.WithContext(ctx).
func commOf(pass *analysis.Pass, e ast.Expr) types.Object {
	for range 8 { // a program has no more of them about one another
		if f := callee(pass.TypesInfo, e); f != nil && called(f) == "Comm.WithContext" {
			sel, ok := ast.Unparen(ast.Unparen(e).(*ast.CallExpr).Fun).(*ast.SelectorExpr)
			if !ok {
				return nil
			}
			e = sel.X
			continue
		}
		v, ok := object(pass.TypesInfo, e).(*types.Var)
		if !ok {
			return object(pass.TypesInfo, e)
		}
		made := valueOf(pass, v)
		if f := callee(pass.TypesInfo, made); f == nil || called(f) != "Comm.WithContext" || isAssigned(pass, v) {
			return v
		}
		e = made
	}
	return nil
}

// valueOf returns the expression by which a variable is defined, in v := e or var v = e; nil: there is none such.
func valueOf(pass *analysis.Pass, v *types.Var) (e ast.Expr) {
	for _, file := range pass.Files {
		if file.FileStart > v.Pos() || v.Pos() >= file.FileEnd {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, name := range n.Lhs {
					if id, ok := name.(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && pass.TypesInfo.Defs[id] == v {
						e = n.Rhs[i]
					}
				}
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if len(n.Names) == len(n.Values) && pass.TypesInfo.Defs[name] == v {
						e = n.Values[i]
					}
				}
			}
			return e == nil
		})
	}
	return e
}

// rankIn returns the communicator whose rank decides a condition, where a variable has it; nil: none does. What a
// function makes of the rank may be the same at all ranks.
func rankIn(pass *analysis.Pass, cond ast.Expr) (comm types.Object) {
	ast.Inspect(cond, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f := callee(pass.TypesInfo, n); f != nil && called(f) == "Comm.Rank" {
				comm = on(pass, n, f)
			}
			return false
		case *ast.Ident:
			if v, ok := pass.TypesInfo.Uses[n].(*types.Var); ok && comm == nil && !isAssigned(pass, v) {
				comm = rankOf(pass, v)
			}
		}
		return comm == nil
	})
	if comm == nil || isAssigned(pass, comm) {
		return nil
	}
	return comm
}

// isAssigned reports whether a variable gets another value after its definition.
func isAssigned(pass *analysis.Pass, v types.Object) bool {
	found := false
	is := func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return ok && pass.TypesInfo.Uses[id] == v
	}
	for _, file := range pass.Files {
		if file.FileStart > v.Pos() || v.Pos() >= file.FileEnd {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				found = found || slices.ContainsFunc(n.Lhs, is)
			case *ast.RangeStmt:
				found = found || is(n.Key) || is(n.Value)
			case *ast.IncDecStmt:
				found = found || is(n.X)
			case *ast.UnaryExpr:
				found = found || n.Op == token.AND && is(n.X)
			}
			return !found
		})
	}
	return found
}

// rankOf returns the communicator whose rank a variable has from its definition on, as in me, n := c.Rank(), c.Size().
func rankOf(pass *analysis.Pass, v *types.Var) types.Object {
	e := valueOf(pass, v)
	if f := callee(pass.TypesInfo, e); f != nil && called(f) == "Comm.Rank" {
		return on(pass, ast.Unparen(e).(*ast.CallExpr), f)
	}
	return nil
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
