package lint

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	readmeLines = 170 // of README.md
	docColumns  = 120
)

// measured is the folder whose pages are generated, one paragraph to a line.
const measured = "benchmarks/results/"

// phrases read as translated from another language. Each has a cure.
var phrases = []struct {
	pattern *regexp.Regexp
	cure    string
}{
	{regexp.MustCompile(`(?i)\b(?:those of|that of)\b`), "repeat the noun"},
	{regexp.MustCompile(`(?i)\b(?:is|are|was|were) none\b`), "say what is missing"},
	{regexp.MustCompile(`(?i)\b(?:nobody|somebody|whoever|whomever)\b`), "name the process, rank or caller"},
	{regexp.MustCompile(`(?i)\bbeside\b`), `write "next to" or "compared with"`},
}

// relativeSubject matches a sentence that begins with a relative clause: "What the device reports is …". It matches
// questions too, with their question mark.
var relativeSubject = regexp.MustCompile(`(?:^|[.!?:;|] |- )(What [a-z][^.?!|]*[.?!|]?)`)

// prose returns the lines of a document. Lines of code, headings and comments are empty, and x stands for a code span.
func prose(f *file) []string {
	lines := outsideCode(f.text)
	comment := false
	for i, line := range lines {
		inside := comment || strings.Contains(line, "<!--")
		if inside {
			comment = !strings.Contains(line, "-->")
		}
		if inside || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "#") {
			lines[i] = ""
		}
		lines[i] = span.ReplaceAllString(lines[i], "x")
	}
	return lines
}

// plainProse: documents name the actor instead of a relative clause or a pronoun.
func plainProse(t *tree) (wrong []string) {
	for _, f := range docs(t) {
		lines := prose(f)
		for i, line := range lines {
			for _, p := range phrases {
				if found := p.pattern.FindString(line); found != "" {
					wrong = append(wrong, fmt.Sprintf("%s:%d: %q: %s", f.path, i+1, found, p.cure))
				}
			}
			if strings.HasPrefix(line, "|") {
				continue // a table's cell may be a clause
			}
			rest := line + " " + strings.Join(lines[i+1:min(i+4, len(lines))], " ")
			for _, m := range relativeSubject.FindAllStringSubmatchIndex(rest, -1) {
				if m[2] < len(line) && !strings.HasSuffix(rest[m[2]:m[3]], "?") {
					wrong = append(wrong, fmt.Sprintf("%s:%d: a sentence begins with %q: name the actor and put it first",
						f.path, i+1, firstWords(rest[m[2]:m[3]])))
				}
			}
		}
	}
	return wrong
}

// plainPackageDocs checks that a package's comment keeps the same rules.
func plainPackageDocs(t *tree) (wrong []string) {
	for _, f := range t.sorted(func(f *file) bool { return f.ast != nil && f.ast.Doc != nil && !f.isTest() }) {
		for _, par := range strings.Split(f.ast.Doc.Text(), "\n\n") {
			par = strings.ReplaceAll(par, "\n", " ")
			for _, p := range phrases {
				if found := p.pattern.FindString(par); found != "" {
					wrong = append(wrong, fmt.Sprintf("%s: the package comment has %q: %s", f.path, found, p.cure))
				}
			}
			for _, m := range relativeSubject.FindAllStringSubmatch(par, -1) {
				if !strings.HasSuffix(m[1], "?") {
					wrong = append(wrong, fmt.Sprintf("%s: a sentence of the package comment begins with %q: name "+
						"the actor and put it first", f.path, firstWords(m[1])))
				}
			}
		}
	}
	return wrong
}

func firstWords(s string) string {
	words := strings.Fields(s)
	return strings.Join(words[:min(4, len(words))], " ")
}

// docWidth: a line of prose has at most 120 columns. Tables, code, comments and generated pages are as long as they are.
func docWidth(t *tree) (wrong []string) {
	for _, f := range docs(t) {
		if strings.HasPrefix(f.path, measured) {
			continue
		}
		shown := prose(f)
		for i, line := range strings.Split(f.text, "\n") {
			if shown[i] != "" && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "<") && !strings.HasPrefix(line, "![") &&
				utf8.RuneCountInString(line) > docColumns {
				wrong = append(wrong, fmt.Sprintf("%s:%d: the line has %d columns, of at most %d", f.path, i+1,
					utf8.RuneCountInString(line), docColumns))
			}
		}
	}
	return wrong
}

// shortReadme: README.md is a front door. Figures, settings and limits have pages of their own.
func shortReadme(t *tree) (wrong []string) {
	f := t.files[readme]
	if f == nil {
		return nil
	}
	if n := strings.Count(f.text, "\n"); n > readmeLines {
		wrong = append(wrong, fmt.Sprintf("%s has %d lines, of at most %d: move a part to docs", readme, n, readmeLines))
	}
	return wrong
}
