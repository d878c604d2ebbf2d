package vet

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"math"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/collectives"
	"golang.org/x/tools/go/analysis"
)

// mpiPath is the package whose use is looked at, and gpuPath has the same calls for the memory of GPUs.
const (
	mpiPath = "github.com/gorun-mpi/mpi"
	gpuPath = mpiPath + "/gpu"
)

// Analyzers are the checks, by their names.
func Analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{requests, errorsKept, buffers, inStep}
}

// callee returns the function or method of package mpi that an expression calls, or nil.
func callee(info *types.Info, e ast.Expr) *types.Func {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return nil
	}
	f := ast.Unparen(call.Fun)
	switch i := f.(type) { // with the types of a generic call
	case *ast.IndexExpr:
		f = i.X
	case *ast.IndexListExpr:
		f = i.X
	}
	var name *ast.Ident
	switch f := f.(type) {
	case *ast.Ident:
		name = f
	case *ast.SelectorExpr:
		name = f.Sel
	default:
		return nil
	}
	fn, ok := info.Uses[name].(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Pkg().Path() != mpiPath && fn.Pkg().Path() != gpuPath {
		return nil
	}
	return fn
}

// called is how a user writes the call of f: mpi.Send, Comm.Split.
func called(f *types.Func) string {
	if r := f.Signature().Recv(); r != nil {
		t := r.Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		if n, ok := t.(*types.Named); ok {
			return n.Obj().Name() + "." + f.Name()
		}
	}
	return f.Pkg().Name() + "." + f.Name()
}

// isPointerTo reports whether t is a pointer to the type of package mpi that has a name.
func isPointerTo(t types.Type, name string) bool {
	p, ok := t.(*types.Pointer)
	if !ok {
		return false
	}
	n, ok := types.Unalias(p.Elem()).(*types.Named)
	return ok && n.Obj().Name() == name && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == mpiPath
}

// starts reports whether f returns a request of what it has started.
func starts(f *types.Func) bool {
	r := f.Signature().Results()
	return f.Signature().Recv() == nil && r.Len() == 2 && isPointerTo(r.At(0).Type(), "Request") &&
		!strings.HasSuffix(f.Name(), "Init")
}

// operations has the names of the blocking calls of all collective operations.
var operations = func() map[string]bool {
	names := map[string]bool{}
	for o := range collectives.Operations {
		names[collectives.Operation(o).Facts().Call] = true
	}
	return names
}()

// operationOf returns the collective operation that a call makes, and "" if it makes none. Calls that ranks may make
// together have one operation: BcastValue and Bcast. The constructors of communicators and windows
// are operations, too.
func operationOf(f *types.Func) string {
	s := f.Signature()
	if s.Recv() != nil {
		r := s.Results()
		if isPointerTo(s.Recv().Type(), "Comm") && r.Len() == 2 && isPointerTo(r.At(0).Type(), "Comm") &&
			f.Name() != "CreateGroup" { // which only the ranks of the group call
			return f.Name()
		}
		return ""
	}
	name := f.Name()
	for _, form := range []string{"Values", "Value", "Objects", "Object", "Alloc", "Layout", "w"} {
		if short, ok := strings.CutSuffix(name, form); ok && operations[short] {
			return short
		}
	}
	if operations[name] || len(name) > 1 && name[0] == 'I' && operations[strings.ToUpper(name[1:2])+name[2:]] {
		return name
	}
	if r := s.Results(); r.Len() == 2 && (isPointerTo(r.At(0).Type(), "Comm") || isPointerTo(r.At(0).Type(), "Win")) &&
		s.Params().Len() > 0 && isPointerTo(s.Params().At(0).Type(), "Comm") { // Spawn, WinAlloc
		return name
	}
	return ""
}

// object is the variable that an expression names, without an index, a slice of all, or parentheses; nil: none.
func object(info *types.Info, e ast.Expr) types.Object {
	e = ast.Unparen(e)
	if s, ok := e.(*ast.SliceExpr); ok && s.Low == nil && s.High == nil && s.Max == nil {
		e = ast.Unparen(s.X)
	}
	id, ok := e.(*ast.Ident)
	if !ok || id.Name == "_" {
		return nil
	}
	if o := info.Defs[id]; o != nil {
		return o
	}
	return info.Uses[id]
}

// mentions reports whether a variable is named in n.
func mentions(info *types.Info, n ast.Node, o types.Object) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if n, ok := n.(*ast.Ident); ok {
			found = found || info.Uses[n] == o || info.Defs[n] == o
		}
		return !found
	})
	return found
}

// eachBlock calls f with every list of statements that are executed one after the other.
func eachBlock(pass *analysis.Pass, f func(list []ast.Stmt)) {
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				f(n.List)
			case *ast.CaseClause:
				f(n.Body)
			case *ast.CommClause:
				f(n.Body)
			}
			return true
		})
	}
}

// requests: the request of a started operation is kept.
var requests = &analysis.Analyzer{
	Name: "mpirequest",
	Doc:  "report requests of started operations that are dropped, and Sets that nothing waits for",
	Run: func(pass *analysis.Pass) (any, error) {
		dropped := func(at token.Pos, f *types.Func) {
			pass.Reportf(at, "the request of %s is dropped: the operation has its buffer until a Wait, "+
				"which needs the request", called(f))
		}
		eachBlock(pass, func(list []ast.Stmt) {
			for _, s := range list {
				switch s := s.(type) {
				case *ast.ExprStmt:
					if f := callee(pass.TypesInfo, s.X); f != nil && starts(f) {
						dropped(s.Pos(), f)
					}
				case *ast.AssignStmt:
					if len(s.Lhs) != 2 || len(s.Rhs) != 1 {
						continue
					}
					f := callee(pass.TypesInfo, s.Rhs[0])
					if id, ok := s.Lhs[0].(*ast.Ident); ok && id.Name == "_" && f != nil && starts(f) {
						dropped(s.Pos(), f)
					}
				}
			}
		})
		for _, file := range pass.Files {
			unwaited(pass, file)
		}
		return nil, nil
	},
}

// unwaited reports local Sets that are given requests, and never used in another way.
func unwaited(pass *analysis.Pass, file *ast.File) {
	var local []types.Object
	adds, others := map[types.Object]token.Pos{}, map[types.Object]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for _, name := range n.Names {
				v := pass.TypesInfo.Defs[name]
				if v != nil && v.Parent() != pass.Pkg.Scope() && isPointerTo(types.NewPointer(v.Type()), "Set") {
					local = append(local, v)
				}
			}
		case *ast.SelectorExpr:
			v := object(pass.TypesInfo, n.X)
			if v == nil || n.Sel.Name != "Add" && n.Sel.Name != "Len" {
				break
			}
			if n.Sel.Name == "Add" && !adds[v].IsValid() {
				adds[v] = n.Pos()
			}
			return false
		case *ast.Ident:
			if v := pass.TypesInfo.Uses[n]; v != nil {
				others[v] = true
			}
		}
		return true
	})
	for _, v := range local {
		if at := adds[v]; at.IsValid() && !others[v] {
			pass.Reportf(at, "nothing waits for the requests of %s: their operations have their buffers until %s.Wait",
				v.Name(), v.Name())
		}
	}
}

// errorsKept: the error of a call is looked at. That of Free is not missed: what is freed is not used again.
var errorsKept = &analysis.Analyzer{
	Name: "mpierror",
	Doc:  "report calls of package mpi whose error is dropped",
	Run: func(pass *analysis.Pass) (any, error) {
		eachBlock(pass, func(list []ast.Stmt) {
			for _, s := range list {
				s, ok := s.(*ast.ExprStmt)
				if !ok {
					continue
				}
				f := callee(pass.TypesInfo, s.X)
				if f == nil || starts(f) || f.Name() == "Free" {
					continue
				}
				r := f.Signature().Results()
				if r.Len() > 0 && types.Identical(r.At(r.Len()-1).Type(), types.Universe.Lookup("error").Type()) {
					pass.Reportf(s.Pos(), "the error of %s is dropped: a rank that goes on after it can leave others waiting",
						called(f))
				}
			}
		})
		return nil, nil
	},
}

// buffers: a buffer is not used while an operation has it.
var buffers = &analysis.Analyzer{
	Name: "mpibuffer",
	Doc: "report uses of a buffer between the start of an operation and its Wait, and receives into a loop's copy of an " +
		"array",
	Run: func(pass *analysis.Pass) (any, error) {
		eachBlock(pass, func(list []ast.Stmt) {
			for i, s := range list {
				if p := pendingOf(pass.TypesInfo, s); p != nil && !escapes(pass, p.holder) {
					p.follow(pass, list[i+1:])
				}
			}
		})
		for _, file := range pass.Files {
			ast.Inspect(file, func(n ast.Node) bool {
				if loop, ok := n.(*ast.RangeStmt); ok {
					intoCopy(pass, loop)
				}
				return true
			})
		}
		return nil, nil
	},
}

// intoCopy reports receives into the variable of a loop over arrays, which has a copy of the element, unless something
// else uses the copy.
func intoCopy(pass *analysis.Pass, loop *ast.RangeStmt) {
	id, ok := loop.Value.(*ast.Ident)
	if !ok || loop.Tok != token.DEFINE || isBlank(id) {
		return
	}
	v := pass.TypesInfo.Defs[id]
	if v == nil {
		return
	}
	if _, ok := v.Type().Underlying().(*types.Array); !ok {
		return
	}
	var receives []*ast.CallExpr
	buffers, used := map[*ast.Ident]bool{}, false
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f := callee(pass.TypesInfo, n)
			if f == nil || f.Name() != "Recv" && f.Name() != "Irecv" || len(n.Args) < 2 {
				break
			}
			s, ok := ast.Unparen(n.Args[1]).(*ast.SliceExpr)
			if !ok {
				break
			}
			if x, ok := ast.Unparen(s.X).(*ast.Ident); ok && pass.TypesInfo.Uses[x] == v {
				receives = append(receives, n)
				buffers[x] = true
			}
		case *ast.Ident:
			used = used || pass.TypesInfo.Uses[n] == v && !buffers[n]
		}
		return true
	})
	for _, r := range receives {
		if !used {
			pass.Reportf(r.Pos(), "%s receives into %s, a copy of the element that the loop drops: use the element by its index",
				called(callee(pass.TypesInfo, r)), v.Name())
		}
	}
}

// pending is an operation that has been started.
type pending struct {
	f       *types.Func
	holder  types.Object // the variable that has the request, or the Set
	set     bool
	failed  types.Object // the variable that has the error of the start
	buffer  types.Object
	part    *ast.SliceExpr // of the buffer; nil: all of it
	reading bool           // the operation writes the buffer; else it only reads it
}

// pendingOf returns the operation that a statement starts: r, err := mpi.Irecv(…), or s.Add(mpi.Irecv(…)). Of an
// operation with several buffers it returns nil.
func pendingOf(info *types.Info, s ast.Stmt) *pending {
	p := &pending{}
	var e ast.Expr
	switch s := s.(type) {
	case *ast.AssignStmt:
		if len(s.Lhs) != 2 || len(s.Rhs) != 1 {
			return nil
		}
		e, p.holder, p.failed = s.Rhs[0], object(info, s.Lhs[0]), object(info, s.Lhs[1])
	case *ast.ExprStmt:
		add := callee(info, s.X)
		if add == nil || called(add) != "Set.Add" {
			return nil
		}
		call := ast.Unparen(s.X).(*ast.CallExpr)
		sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok || len(call.Args) != 1 {
			return nil
		}
		e, p.holder, p.set = call.Args[0], object(info, sel.X), true
	default:
		return nil
	}
	p.f = callee(info, e)
	if p.f == nil || p.holder == nil || !starts(p.f) {
		return nil
	}
	switch name := strings.TrimSuffix(p.f.Name(), "Layout"); name {
	case "Isend", "Issend", "Irsend":
	case "Irecv", "Ibcast":
		p.reading = true
	default:
		return nil
	}
	args := ast.Unparen(e).(*ast.CallExpr).Args
	if len(args) < 2 {
		return nil
	}
	p.buffer = object(info, args[1])
	if s, ok := ast.Unparen(args[1]).(*ast.SliceExpr); ok && p.buffer == nil {
		p.part, p.buffer = s, object(info, s.X)
	}
	if p.buffer == nil {
		return nil
	}
	return p
}

// follow looks at the statements after the start, up to the first that may wait for it.
func (p *pending) follow(pass *analysis.Pass, list []ast.Stmt) {
	for _, s := range list {
		if p.isWaitedFor(pass.TypesInfo, s) || p.isReplaced(pass.TypesInfo, s) {
			return
		}
		if p.hasFailed(pass.TypesInfo, s) {
			continue
		}
		if use := p.use(pass, s); use != nil {
			what := "written"
			if p.reading {
				what = "used"
			}
			pass.Reportf(use.Pos(), "%s is %s while %s has it: Wait first", p.buffer.Name(), what, called(p.f))
			return
		}
	}
}

// isWaitedFor reports whether a statement may complete the operation, or hands the request on.
func (p *pending) isWaitedFor(info *types.Info, s ast.Stmt) bool {
	if p.set {
		if q := pendingOf(info, s); q != nil && q.holder == p.holder {
			return false // Add of another one
		}
	}
	return mentions(info, s, p.holder)
}

// hasFailed reports whether a statement is executed only if the operation could not be started: if err != nil { … }.
func (p *pending) hasFailed(info *types.Info, s ast.Stmt) bool {
	i, ok := s.(*ast.IfStmt)
	if !ok || i.Init != nil || i.Else != nil || p.failed == nil {
		return false
	}
	b, ok := i.Cond.(*ast.BinaryExpr)
	return ok && b.Op == token.NEQ && object(info, b.X) == p.failed
}

// isReplaced reports whether the variable gets another buffer somewhere in a statement.
func (p *pending) isReplaced(info *types.Info, s ast.Stmt) bool {
	found := false
	ast.Inspect(s, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		found = found || ok && slices.ContainsFunc(a.Lhs, func(e ast.Expr) bool {
			_, slice := ast.Unparen(e).(*ast.SliceExpr)
			return !slice && object(info, e) == p.buffer
		})
		return !found
	})
	return found
}

// use is where a statement uses the elements of the buffer in a way that is not allowed; nil: nowhere. The slice itself
// may be used: stored, cut, compared with nil.
func (p *pending) use(pass *analysis.Pass, s ast.Stmt) (use ast.Node) {
	info := pass.TypesInfo
	is := func(e ast.Expr) bool { return p.shares(pass, e) }
	element := func(e ast.Expr) bool {
		i, ok := ast.Unparen(e).(*ast.IndexExpr)
		return ok && p.has(pass, i)
	}
	ast.Inspect(s, func(n ast.Node) bool {
		if use != nil {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit, *ast.DeferStmt, *ast.GoStmt:
			return false // it may run after the Wait
		case *ast.AssignStmt:
			if slices.ContainsFunc(n.Lhs, element) {
				use = n
			}
		case *ast.IncDecStmt:
			if element(n.X) {
				use = n
			}
		case *ast.IndexExpr:
			if p.reading && element(n) {
				use = n
			}
		case *ast.RangeStmt:
			if p.reading && is(n.X) && !isBlank(n.Value) {
				use = n.X
			}
		case *ast.CallExpr:
			for i, arg := range n.Args {
				if is(arg) && p.inCall(info, n, i) {
					use = arg
				}
			}
		}
		return use == nil
	})
	return use
}

// shares reports whether a slice is certain to have elements that the operation has.
func (p *pending) shares(pass *analysis.Pass, e ast.Expr) bool {
	s, cut := ast.Unparen(e).(*ast.SliceExpr)
	if cut {
		e = s.X
	}
	if object(pass.TypesInfo, e) != p.buffer {
		return false
	}
	if p.part == nil || !cut || s.Low == nil && s.High == nil {
		return true
	}
	if sameValue(pass, s.Low, p.part.Low) && sameValue(pass, s.High, p.part.High) {
		return true
	}
	low, high, known := bounds(pass.TypesInfo, s)
	from, to, alsoKnown := bounds(pass.TypesInfo, p.part)
	return known && alsoKnown && max(low, from) < min(high, to)
}

// has reports whether an element is certain to be one that the operation has.
func (p *pending) has(pass *analysis.Pass, i *ast.IndexExpr) bool {
	if p.part == nil {
		return p.shares(pass, i.X)
	}
	if object(pass.TypesInfo, i.X) != p.buffer {
		return false
	}
	if p.part.Low != nil && sameValue(pass, i.Index, p.part.Low) {
		return true // an operation without elements is none that a program starts and goes on with them
	}
	at, ok := constantOf(pass.TypesInfo, i.Index)
	low, high, known := bounds(pass.TypesInfo, p.part)
	return ok && known && low <= at && at < high
}

// bounds are the constant bounds of a slice expression. Where the length of the slice is the upper one, it is no limit.
func bounds(info *types.Info, s *ast.SliceExpr) (low, high int64, known bool) {
	high = math.MaxInt64
	lowKnown, highKnown := true, true
	if s.Low != nil {
		low, lowKnown = constantOf(info, s.Low)
	}
	if s.High != nil {
		high, highKnown = constantOf(info, s.High)
	}
	return low, high, lowKnown && highKnown
}

func constantOf(info *types.Info, e ast.Expr) (int64, bool) {
	v := info.Types[e].Value
	if v == nil {
		return 0, false
	}
	return constant.Int64Val(constant.ToInt(v))
}

// sameValue reports whether two expressions are written alike, of constants and variables that keep their first values;
// nil is like nil.
func sameValue(pass *analysis.Pass, a, b ast.Expr) bool {
	if a == nil || b == nil {
		return a == b
	}
	if types.ExprString(a) != types.ExprString(b) {
		return false
	}
	steady := true
	for _, e := range []ast.Expr{a, b} {
		ast.Inspect(e, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr, *ast.IndexExpr, *ast.SelectorExpr:
				steady = false
			case *ast.Ident:
				if v, ok := pass.TypesInfo.Uses[n].(*types.Var); ok {
					steady = steady && v.Parent() != pass.Pkg.Scope() && !isAssigned(pass, v)
				}
			}
			return steady
		})
	}
	return steady && objectsAlike(pass.TypesInfo, a, b)
}

// objectsAlike reports whether the names in two expressions, written alike, are of the same things.
func objectsAlike(info *types.Info, a, b ast.Expr) bool {
	names := func(e ast.Expr) (all []types.Object) {
		ast.Inspect(e, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				all = append(all, info.Uses[id])
			}
			return true
		})
		return all
	}
	return slices.Equal(names(a), names(b))
}

// inCall reports whether a call uses the elements of its argument i.
func (p *pending) inCall(info *types.Info, call *ast.CallExpr, i int) bool {
	f := info.Types[call.Fun]
	switch {
	case f.IsType(): // a conversion
		return false
	case !f.IsBuiltin():
		_, cut := ast.Unparen(call.Args[i]).(*ast.SliceExpr)
		return p.reading && (p.part == nil || cut) // a function may have the whole slice and use another part
	}
	switch name := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		switch name.Name {
		case "copy", "clear":
			return i == 0 || p.reading
		case "append":
			return p.reading && (i == 0 || call.Ellipsis.IsValid())
		case "print", "println", "min", "max":
			return p.reading
		}
	}
	return false
}

// escapes reports whether code elsewhere may use a variable: it is one of the package, a function has captured it, or
// its address is taken.
func escapes(pass *analysis.Pass, o types.Object) bool {
	if o.Parent() == pass.Pkg.Scope() {
		return true
	}
	found := false
	for _, file := range pass.Files {
		if file.FileStart > o.Pos() || o.Pos() >= file.FileEnd {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				inside := n.Pos() <= o.Pos() && o.Pos() < n.End()
				found = found || !inside && mentions(pass.TypesInfo, n.Body, o)
			case *ast.UnaryExpr:
				found = found || n.Op == token.AND && object(pass.TypesInfo, n.X) == o
			}
			return !found
		})
	}
	return found
}
