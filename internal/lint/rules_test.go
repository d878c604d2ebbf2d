package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/settings"
)

// rule is one custom. It returns a sentence for each place where it is not kept.
type rule struct {
	name  string
	check func(t *tree) []string
}

var rules = []rule{
	{"package docs", packageDocs},
	{"calls in docs", callsInDocs},
	{"table of rooms", tableOfRooms},
	{"exported docs", exportedDocs},
	{"reports whether", reportsWhether},
	{"unfinished words", unfinishedWords},
	{"package names", packageNames},
	{"typed atomics", typedAtomics},
	{"who waits", whoWaits},
	{"the engine does not nap", noNaps},
	{"skips have reasons", skipReasons},
	{"packages of tests", testPackages},
	{"settings", settingNames},
	{"no large binaries", largeBinaries},
	{"linters start from none", lintersFromNone},
	{"links", links},
	{"paths in docs", pathsInDocs},
	{"documents in code", docsInCode},
	{"names in docs", namesInDocs},
	{"functions in docs", functionsInDocs},
	{"public names are mapped", publicNamesMapped},
	{"MPI names are true", mpiNamesTrue},
	{"plain prose", plainProse},
	{"plain package docs", plainPackageDocs},
	{"width of docs", docWidth},
	{"short README", shortReadme},
}

func TestCustoms(t *testing.T) {
	tr := checkout(t)
	for _, r := range rules {
		t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) {
			for _, complaint := range r.check(tr) {
				t.Error(complaint)
			}
		})
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

// What every package's comment says, after which a reader knows whether his line belongs there.
var docLines = []string{"Owns:", "May call:", "Never:"}

// packageDocs checks that every package has a doc.go with the three lines. A program may have its comment in main.go,
// and an example is covered by the doc.go above it.
func packageDocs(t *tree) (wrong []string) {
	dirs := map[string]*file{} // any file of the package
	for _, f := range t.sorted(func(f *file) bool { return f.ast != nil && !f.isTest() && !strings.Contains(f.path, "testdata/") }) {
		dirs[f.dir()] = f
	}
	for _, dir := range sortedKeys(dirs) {
		where := path.Join(dir, "doc.go")
		doc := t.files[where]
		if dirs[dir].isMain() && doc == nil {
			where = path.Join(dir, "main.go")
			doc = t.files[where]
		}
		if doc == nil || doc.ast == nil || doc.ast.Doc == nil {
			wrong = append(wrong, fmt.Sprintf("package %s has no package comment in %s: say what it is, then %s", dir, where, strings.Join(docLines, ", ")))
			continue
		}
		if strings.HasPrefix(dir, "examples/") || doc.isKit() && doc.isMain() {
			continue
		}
		for _, line := range docLines {
			if !regexp.MustCompile(`(?m)^\s*` + line + ` +\S`).MatchString(doc.ast.Doc.Text()) {
				wrong = append(wrong, fmt.Sprintf("%s: the package comment has no line that begins with %q", where, line))
			}
		}
	}
	return wrong
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// exportedDocs checks that an exported name says what it means. Constants may be explained by their group or at the end
// of their line.
func exportedDocs(t *tree) (wrong []string) {
	for _, f := range t.sorted(func(f *file) bool { return f.ast != nil && !f.isTest() && !f.isMain() }) {
		for i, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !obvious(d) {
					wrong = append(wrong, f.line(d.Pos())+": "+d.Name.Name+" is exported and has no comment")
				}
			case *ast.GenDecl:
				if i == 0 || !valuesOf(d, f.ast.Decls[i-1]) {
					wrong = append(wrong, undocumented(f, d)...)
				}
			}
		}
	}
	return wrong
}

// valuesOf reports whether d is the constants of the type that is declared right above, whose comment speaks for them.
func valuesOf(d *ast.GenDecl, above ast.Decl) bool {
	typ, ok := above.(*ast.GenDecl)
	if !ok || typ.Tok != token.TYPE || d.Tok != token.CONST || len(typ.Specs) != 1 || len(d.Specs) == 0 {
		return false
	}
	id, ok := d.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident)
	return ok && id.Name == typ.Specs[0].(*ast.TypeSpec).Name.Name
}

// exportedReceiver reports whether d is a function, or a method that another package can name.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// obvious reports whether d is a method of the standard library's interfaces.
func obvious(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"String", "Error", "Unwrap", "Is"}, d.Name.Name)
}

// notYetReporting are folders whose comments do not keep reportsWhether so far.
var notYetReporting = []string{".", "launcher"}

// reportsWhether checks that the comment of a function that returns a bool alone has "reports whether" in it, or names
// the interface that the function implements.
func reportsWhether(t *tree) (wrong []string) {
	for _, f := range t.sorted(func(f *file) bool { return f.ast != nil && !slices.Contains(notYetReporting, f.dir()) }) {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Doc == nil || !returnsBool(fn) || obvious(fn) {
				continue
			}
			text := strings.Join(strings.Fields(fn.Doc.Text()), " ")
			if !strings.Contains(text, "reports whether ") && !strings.HasPrefix(text, fn.Name.Name+" implements ") {
				wrong = append(wrong, f.line(fn.Pos())+": the comment of "+fn.Name.Name+` does not say "reports whether"`)
			}
		}
	}
	return wrong
}

// returnsBool reports whether a function returns a bool and nothing else.
func returnsBool(d *ast.FuncDecl) bool {
	if d.Type.Results.NumFields() != 1 {
		return false
	}
	typ, ok := d.Type.Results.List[0].Type.(*ast.Ident)
	return ok && typ.Name == "bool"
}

func undocumented(f *file, d *ast.GenDecl) (wrong []string) {
	if d.Tok == token.IMPORT || d.Doc != nil && d.Tok != token.TYPE {
		return nil
	}
	for i, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && d.Doc == nil && s.Comment == nil {
				wrong = append(wrong, f.line(s.Pos())+": "+s.Name.Name+" is exported and has no comment")
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				// The first of a group without comments speaks for the group.
				if name.IsExported() && s.Doc == nil && s.Comment == nil && !(i > 0 && documented(d.Specs[0])) {
					wrong = append(wrong, f.line(name.Pos())+": "+name.Name+" is exported and has no comment")
				}
			}
		}
	}
	return wrong
}

func documented(spec ast.Spec) bool {
	s, ok := spec.(*ast.ValueSpec)
	return ok && (s.Doc != nil || s.Comment != nil)
}

// The words that say that something is not finished, put together here so that this file passes.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b|(?i:\bst` + `ub(s|bed)?\b|not (yet )?imple` + `mented)`)

// unfinishedWords checks that the code has no words for what is not done: that is an issue.
func unfinishedWords(t *tree) (wrong []string) {
	for _, f := range t.sorted(func(f *file) bool { return f.isGo() || strings.HasPrefix(f.path, "scripts/") || f.path == "Makefile" }) {
		for i, line := range strings.Split(f.text, "\n") {
			if w := unfinished.FindString(line); w != "" {
				wrong = append(wrong, fmt.Sprintf("%s:%d: %q: finish it, or open an issue and take the word out", f.path, i+1, w))
			}
		}
	}
	return wrong
}

// packageNames checks that no package or file has a name that says nothing: such a name attracts everything.
func packageNames(t *tree) (wrong []string) {
	bad := []string{"util", "utils", "common", "base", "misc", "helper", "helpers", "shared", "types", "core"}
	seen := map[string]bool{}
	for _, f := range t.sorted((*file).isGo) {
		for _, name := range []string{path.Base(f.dir()), strings.TrimSuffix(path.Base(f.path), ".go")} {
			if slices.Contains(bad, name) && !(name == "types" && f.dir() == ".") && !seen[f.dir()+name] {
				seen[f.dir()+name] = true
				wrong = append(wrong, fmt.Sprintf("%s: %s is no name for an idea: call it after what it does", f.path, name))
			}
		}
	}
	return wrong
}

// typedAtomics checks that a word that is sometimes accessed without its lock is declared so (atomic.Uint64), and then
// cannot be accessed in any other way.
func typedAtomics(t *tree) (wrong []string) {
	function := regexp.MustCompile(`^(Add|Load|Store|Swap|CompareAndSwap|And|Or)(Int|Uint|Pointer)`)
	for _, f := range t.sorted(func(f *file) bool { return f.ast != nil }) {
		for _, sel := range selections(f, "sync/atomic") {
			if function.MatchString(sel.Sel.Name) {
				wrong = append(wrong, fmt.Sprintf("%s: atomic.%s: use a type of sync/atomic for the field instead", f.line(sel.Pos()), sel.Sel.Name))
			}
		}
	}
	return wrong
}

// selections finds uses of an imported package.
func selections(f *file, importPath string) (sels []*ast.SelectorExpr) {
	name := importedAs(f, importPath)
	if name == "" {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == name {
				sels = append(sels, sel)
			}
		}
		return true
	})
	return sels
}

func importedAs(f *file, importPath string) string {
	for _, spec := range f.ast.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); p == importPath {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return path.Base(p)
		}
	}
	return ""
}

// The files that may wait, and why. Everything else is called with a lock held or by a caller that counts on an answer.
var mayWait = map[string]string{
	"pml/wait.go":                     "the one place of the engine that sleeps",
	"pml/lock.go":                     "the lock: a goroutine that waits for it looks from time to time",
	"pml/sharing.go":                  "ForgetDevice: device memory is freed when a closed engine's copies have ended",
	"pml/yield_other.go":              "wait.go's way to give the processor away where there is no sched_yield",
	"transport/tcp/resume.go":         "a closed device's last bytes, in a goroutine of its own",
	"transport/verbs/control.go":      "a goroutine of its own sleeps where the control connections do",
	"transport/verbs/close.go":        "Close lets the device deliver what was sent",
	"internal/procs/cleaner.go":       "the cleaner, a process of its own, waits for a killed process's last write",
	"internal/procs/group.go":         "an interrupted build waits for its killed compilers, another's children",
	"internal/procs/orphans_linux.go": "the end of a job, and the cleaner, wait for the ends of killed processes",
	"internal/window/guard.go":        "for a rank that has lost its CPU in memory that it updates",
	"internal/window/lock.go":         "where another goroutine sleeps at the board, or a member has failed",
	"gpu/wait.go":                     "a blocking copy between host and device, until it has ended",
	"transport/shm/cut_linux.go":      "a goroutine of the device, Close, or a failed call, until a peer's copy is over",
}

// whoWaits checks that outside of these files no code sleeps, parks or yields; in pml none receives from a channel
// either.
func whoWaits(t *tree) (wrong []string) {
	waits := map[string]bool{}
	for _, f := range t.goFiles() {
		if strings.HasPrefix(f.path, "benchmarks/") || strings.HasPrefix(f.path, "examples/") {
			continue // programs: what a user may do
		}
		for _, pos := range waitsIn(f) {
			waits[f.path] = true
			if mayWait[f.path] == "" {
				wrong = append(wrong, fmt.Sprintf("%s: waits: who may is listed in mayWait (internal/lint/rules_test.go); in the engine it is pml/wait.go only", f.line(pos)))
			}
		}
	}
	for _, name := range sortedKeys(mayWait) {
		if t.files[name] != nil && !waits[name] {
			wrong = append(wrong, name+" may wait (mayWait in internal/lint/rules_test.go) and does not: take it off the list")
		}
	}
	return wrong
}

// noNaps checks that the engine sleeps until something arrives, and never for a time: a nap is too long or too short.
// The exception is the lock, under which nothing takes long.
func noNaps(t *tree) (wrong []string) {
	for _, f := range t.goFiles() {
		// The timer of returned.go asks other ranks, and the timer of flood.go brings the watcher back to messages that
		// no receive waits for; no caller sleeps by them.
		if f.dir() != "pml" || slices.Contains([]string{"pml/lock.go", "pml/returned.go", "pml/flood.go"}, f.path) {
			continue
		}
		timeName := importedAs(f, "time")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, ok := sel.X.(*ast.Ident)
			if timer := slices.Contains([]string{"Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}, sel.Sel.Name); ok &&
				timer && timeName != "" && id.Name == timeName {
				wrong = append(wrong, fmt.Sprintf("%s: time.%s: the engine sleeps until something arrives, never for a time; "+
					"have the device show what is waited for", f.line(sel.Pos()), sel.Sel.Name))
			}
			return true
		})
	}
	return wrong
}

func waitsIn(f *file) (at []token.Pos) {
	timeName, runtimeName := importedAs(f, "time"), importedAs(f, "runtime")
	inEngine := f.dir() == "pml"
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			from := ""
			if id, ok := sel.X.(*ast.Ident); ok {
				from = id.Name
			}
			switch {
			case sel.Sel.Name == "Sleep" && from == timeName && from != "",
				sel.Sel.Name == "Gosched" && from == runtimeName && from != "",
				sel.Sel.Name == "Park" && f.dir() != "transport":
				at = append(at, n.Pos())
			}
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && inEngine {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}

// skipReasons checks that a skip says why, so that the reader of a log can tell whether it was earned.
func skipReasons(t *tree) (wrong []string) {
	for _, f := range t.sorted(func(f *file) bool { return f.ast != nil }) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch {
			case sel.Sel.Name == "SkipNow" && len(call.Args) == 0,
				(sel.Sel.Name == "Skip" || sel.Sel.Name == "Skipf") && (len(call.Args) == 0 || emptyString(call.Args[0])):
				wrong = append(wrong, f.line(call.Pos())+": a skip without a reason: say what is missing and how to get it")
			}
			return true
		})
	}
	return wrong
}

func emptyString(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING && len(strings.Trim(lit.Value, "\"` ")) == 0
}

var debianPackage = regexp.MustCompile(`(?m)(?:RequireProgram\([^"\n]+, (?:"[^"]*"|[\w.]+), |proc\.Installed\()"([^"]+)"`)

// testPackages checks that a Debian package that a test asks for is one that scripts/deps installs. Any other would be
// missing for ever, and the test skipped without a word.
func testPackages(t *tree) (wrong []string) {
	deps := t.files["scripts/deps"]
	if deps == nil {
		return nil
	}
	installs := strings.FieldsFunc(deps.text, func(r rune) bool { return strings.ContainsRune(" \t\n()", r) })
	for _, f := range t.sorted(func(f *file) bool { return f.isGo() && f.dir() != "internal/lint" }) {
		for _, m := range debianPackage.FindAllStringSubmatch(f.text, -1) {
			for name := range strings.FieldsSeq(m[1]) {
				if !slices.Contains(installs, name) {
					wrong = append(wrong, fmt.Sprintf("%s: scripts/deps does not install %s, which a test needs", f.path, name))
				}
			}
		}
	}
	return wrong
}

// Files whose subject is a variable that does not exist.
var misspellings = []string{"internal/settings/settings_test.go", "internal/lint/fail_test.go", "cmd/gorun/jobs_test.go"}

var settingName = regexp.MustCompile(`\bGORUN_[A-Z0-9_]*[A-Z0-9]\b`)

// settingNames checks that a GORUN_ variable that a file names is a setting (or a test's own, GORUN_TEST_), and the
// program reads every setting, by its field or by its name.
func settingNames(t *tree) (wrong []string) {
	inCode := map[string]bool{} // names of variables, and of fields
	for _, f := range t.sorted(func(f *file) bool { return !f.bin && !slices.Contains(misspellings, f.path) }) {
		reads := f.ast != nil && !f.isTest() && f.dir() != "internal/settings"
		for i, line := range strings.Split(f.text, "\n") {
			for _, name := range settingName.FindAllString(line, -1) {
				_, known := settings.Find(name)
				inCode[name] = inCode[name] || reads
				if !known && !strings.HasPrefix(name, "GORUN_TEST_") {
					wrong = append(wrong, fmt.Sprintf("%s:%d: %s is not in the table of settings (internal/settings/values.go): a user who sets it is warned that it has no effect; a test's own begins with GORUN_TEST_", f.path, i+1, name))
				}
			}
		}
		if reads {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					inCode[sel.Sel.Name] = true
				}
				return true
			})
		}
	}
	if t.files["internal/settings/values.go"] == nil {
		return wrong
	}
	for _, s := range settings.Table {
		if !inCode[s.Name] && !inCode[s.Field] {
			wrong = append(wrong, s.Name+" is a setting and no code reads it")
		}
	}
	return wrong
}

const largest = 1 << 20

// largeBinaries checks that there are none: what git has once it has for ever.
func largeBinaries(t *tree) (wrong []string) {
	for _, f := range t.sorted(func(f *file) bool { return f.bin && f.size > largest }) {
		if t.tracked == nil || t.tracked[f.path] {
			wrong = append(wrong, fmt.Sprintf("%s: a binary file of %d bytes is tracked; the most is %d", f.path, f.size, largest))
		}
	}
	return wrong
}

// lintersFromNone checks that each linter is enabled on purpose.
func lintersFromNone(t *tree) []string {
	f := t.files[".golangci.yml"]
	if f == nil || !regexp.MustCompile(`(?m)^\s+default: none\s*(#.*)?$`).MatchString(f.text) {
		return []string{".golangci.yml must say `default: none`: each linter is enabled on purpose"}
	}
	return nil
}
