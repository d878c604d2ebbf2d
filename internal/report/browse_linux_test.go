package report

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// reported runs an example with --report, and returns the page.
func reported(t *testing.T, example string, ranks int, args ...string) (page string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "report")
	args = append([]string{"--report", dir, "-n", strconv.Itoa(ranks), proc.Build(t, "examples/"+example)}, args...)
	cmd := exec.CommandContext(t.Context(), proc.Gorun(t), args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gorun %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return filepath.Join(dir, "report.html")
}

// written writes the page of a report.
func written(t *testing.T, parts []*Part) (page string) {
	t.Helper()
	m, err := Merge(parts)
	if err != nil {
		t.Fatal(err)
	}
	page = filepath.Join(t.TempDir(), "report.html")
	if err := writeFile(page, m.Page); err != nil {
		t.Fatal(err)
	}
	return page
}

// sum adds up a column of rows whose column key is value; of all rows if key is empty.
func sum(t *testing.T, rows []map[string]string, key, value, column string) (sum int) {
	t.Helper()
	for _, r := range rows {
		if key != "" && r[key] != value {
			continue
		}
		n, err := strconv.Atoi(r[column])
		if err != nil {
			t.Fatalf("column %s of %v: %v", column, r, err)
		}
		sum += n
	}
	return sum
}

// want is what a program does: by operation calls and bytes; messages and their bytes; arrows.
type want struct {
	calls                  map[string][2]int
	messages, bytes, pairs int
	arrows                 int
}

// shows expects that the page shows what the program has done.
func (b *browser) shows(w want, ranks int) {
	t := b.t
	t.Helper()
	sites := b.rows("sites")
	for op, n := range w.calls {
		if got := [2]int{sum(t, sites, "call", op, "calls"), sum(t, sites, "call", op, "bytes")}; got != n {
			t.Errorf("%s has %d calls and bytes in the page, want %d", op, got, n)
		}
	}
	of := b.rows("ranks")
	if calls := sum(t, sites, "", "", "calls"); len(of) != ranks || sum(t, of, "", "", "calls") != calls {
		t.Errorf("%d ranks have %d calls, and all lines %d", len(of), sum(t, of, "", "", "calls"), calls)
	}
	for _, r := range of {
		if sum(t, []map[string]string{r}, "", "", "waiting") > sum(t, []map[string]string{r}, "", "", "in calls") {
			t.Errorf("a rank waits for longer than it is in calls: %v", r)
		}
		if r["memory"] == "0" || r["CPU time"] == "0" {
			t.Errorf("a rank without memory or CPU time: %v", r)
		}
	}
	by := b.rows("transports")
	got := [3]int{sum(t, by, "", "", "messages"), sum(t, by, "", "", "bytes"), sum(t, by, "", "", "pairs of ranks")}
	if got != [3]int{w.messages, w.bytes, w.pairs} {
		t.Errorf("messages, bytes and pairs by transport are %v, want %+v", got, w)
	}
	tiles := map[string]string{}
	for _, tile := range b.eval(`[...document.querySelectorAll("#tiles div")].map(d => [...d.children].
		map(e => e.textContent))`).([]any) {
		pair := tile.([]any)
		tiles[pair[0].(string)] = pair[1].(string)
	}
	if tiles["messages"] != strconv.Itoa(w.messages) {
		t.Errorf("the page begins with %v", tiles)
	}
	arrows := b.eval(`JSON.parse(document.getElementById("data").textContent).timeline.arrows`)
	if list, _ := arrows.([]any); len(list) != w.arrows*arrowFields {
		t.Errorf("%d numbers of arrows, want %d arrows", len(list), w.arrows)
	} else {
		for i := 3; i < len(list); i += arrowFields {
			if list[i].(float64) < 0 {
				t.Errorf("an arrow goes back in time: %v", list[i-3:i+3])
			}
		}
	}
}

// The page of a known program, in a browser: its numbers are what the program did, its console is silent, it sorts, it
// zooms, and it is as wide as the window.
func TestBrowserOfHeat(t *testing.T) {
	b := newBrowser(t)
	const ranks, cells, steps = 4, 60, 50
	const halos = 2 * (ranks - 1) * steps // messages
	const row = 8 * (cells + 2)
	page := reported(t, "heat", ranks, "-cells", fmt.Sprint(cells), "-steps", fmt.Sprint(steps), "-report", "0", "-o", "")
	b.open(page, 1280)
	b.shows(want{
		calls: map[string][2]int{"Irecv": {2 * ranks * steps, 0}, "Isend": {2 * ranks * steps, halos * row},
			"WaitAll": {ranks * steps, halos * row}, "Reduce": {ranks, ranks * 3 * 8}, "Gatherv": {ranks, cells * cells * 8}},
		messages: halos, bytes: halos * row, pairs: 2 * (ranks - 1), arrows: halos,
	}, ranks)
	about := b.eval(`document.title + ", " + document.getElementById("what").textContent`).(string)
	if !strings.HasPrefix(about, "heat: report, 4 ranks on 1 host, started 20") {
		t.Errorf("the page is about %q", about)
	}
	if got := b.eval(`document.querySelectorAll("#findings li").length`); got.(float64) < 1 {
		t.Error("the page says nothing of what to do")
	}
	b.notBlank(6)
	b.shoot("heat-1280-light")

	sorted := func(order string) {
		b.eval(`[...document.querySelectorAll("#sites th button")].find(e => e.textContent === "calls").click()`)
		got := b.eval(`document.querySelector("#sites th[aria-sort]").getAttribute("aria-sort")`)
		rows := b.rows("sites")
		first, last := sum(t, rows[:1], "", "", "calls"), sum(t, rows[len(rows)-1:], "", "", "calls")
		if got != order || (first > last) != (order == "descending") {
			t.Errorf("sorted %v from %d to %d, want %s", got, first, last, order)
		}
	}
	sorted("descending")
	sorted("ascending")

	view := func() (from, to, length float64, of string) {
		v := b.eval(`(d => [+d.from, +d.to, JSON.parse(document.getElementById("data").textContent).timeline.length,
			d.ranks])(document.querySelector("#timeline canvas").dataset)`).([]any)
		return v[0].(float64), v[1].(float64), v[2].(float64), v[3].(string)
	}
	if from, to, length, of := view(); from != 0 || to != length || of != "0-4" {
		t.Errorf("the timeline begins with %v to %v of %v, ranks %s", from, to, length, of)
	}
	b.drag("#timeline canvas", 0.5, 0.1, 0.75, 0.4)
	from, to, length, of := view()
	if from < 0.4*length || to > 0.8*length || of != "0-2" {
		t.Errorf("what was marked is shown as %v to %v of %v, ranks %s", from, to, length, of)
	}
	b.eval(`document.getElementById("zoom-in").click()`)
	if closer, until, _, _ := view(); closer <= from || until >= to {
		t.Errorf("zoomed in from %v–%v to %v–%v", from, to, closer, until)
	}
	b.shoot("heat-1280-zoomed")
	b.eval(`document.getElementById("whole").click()`)
	if from, to, length, of := view(); from != 0 || to != length || of != "0-4" {
		t.Errorf("all is %v to %v of %v, ranks %s", from, to, length, of)
	}

	b.scheme("dark")
	if got := b.eval("getComputedStyle(document.body).backgroundColor"); got != "rgb(20, 24, 29)" {
		t.Errorf("who prefers dark sees %v", got)
	}
	b.shoot("heat-1280-dark")
	b.resize(800)
	b.shoot("heat-800-dark")
	b.scheme("light")
	b.shoot("heat-800-light")
	b.notBlank(6)
	if got := b.eval("document.documentElement.scrollWidth").(float64); got > 800 {
		t.Errorf("in a window of 800 pixels the page is %v wide", got)
	}
	b.quiet()
}

// Windows and collective calls are in the page too.
func TestBrowserOfOthers(t *testing.T) {
	b := newBrowser(t)
	const ranks, steps, keys = 4, 30, 1000
	b.open(reported(t, "halo", ranks, "-cells", "100", "-steps", fmt.Sprint(steps)), 1280)
	b.shows(want{
		calls: map[string][2]int{"PutNotify": {2 * ranks * steps, 2 * ranks * steps * 8}, "WaitNote": {2 * ranks * steps, 0},
			"Allreduce": {ranks, ranks * 2 * 8}},
		messages: 2 * ranks * steps, bytes: 2 * ranks * steps * 8, pairs: 2 * ranks,
	}, ranks)
	b.shoot("halo-1280-light")
	b.open(reported(t, "samplesort", ranks, "-keys", fmt.Sprint(keys)), 800)
	b.shows(want{
		calls: map[string][2]int{"Allgather": {ranks, ranks * 64 * 8}, "Alltoall": {ranks, ranks * ranks * 8},
			"Alltoallv": {ranks, ranks * keys * 8}, "Exscan": {ranks, ranks * 8}, "Reduce": {ranks, ranks * 8},
			"Allreduce": {ranks, ranks * 6 * 8}},
	}, ranks)
	if got := b.rows("algorithms"); len(got) < 6 {
		t.Errorf("the algorithms are %v", got)
	}
	b.shoot("samplesort-800-light")
	b.quiet()
}

// The page of a thousand ranks has no more nodes than others, and the names of hostile ranks are words in it.
func TestBrowserOfThousand(t *testing.T) {
	b := newBrowser(t)
	page := written(t, crowd(1000))
	before, _ := b.work()
	b.open(page, 1280)
	drawn := b.eval(`performance.now()`) // since the browser was told to open it
	after, scripts := b.work()
	nodes := b.eval(`document.querySelectorAll("*").length`).(float64)
	t.Logf("1,000 ranks: the page is drawn after %.0f ms, of which its thread works %v, %v in scripts; it has %v nodes",
		drawn, after-before, scripts, nodes)
	if nodes > 3000 {
		t.Errorf("the page has %v nodes", nodes)
	}
	b.notBlank(6)
	b.shoot("thousand-1280-light")
	b.drag("#timeline canvas", 0.3, 0.2, 0.31, 0.23)
	b.shoot("thousand-1280-zoomed")
	b.resize(800)
	b.shoot("thousand-800-zoomed")
	if got := b.eval(`[...document.querySelectorAll("#tiles div")].filter(d => d.scrollWidth > d.clientWidth).
		map(d => d.textContent).join()`); got != "" {
		t.Errorf("figures are wider than their tiles: %v", got)
	}

	b.open(written(t, hostile()), 800)
	if got := b.eval(`document.title`).(string); strings.HasPrefix(got, "owned") || !strings.Contains(got, evil[0]) {
		t.Errorf("the title is %q", got)
	}
	if got := b.eval(`document.querySelectorAll("img, script").length`); got != 2.0 {
		t.Errorf("%v images and scripts", got)
	}
	if got := b.eval("document.documentElement.scrollWidth").(float64); got > 800 {
		t.Errorf("long names make the page %v wide", got)
	}
	b.shoot("hostile-800-light")
	b.quiet()
}

// The browser's tests can fail: a script that is not the page's own does not run, and the console says so.
func TestBrowserSeesComplaints(t *testing.T) {
	b := newBrowser(t)
	page := written(t, two())
	text, err := os.ReadFile(page)
	if err == nil {
		err = writeFile(page, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s<script>document.title = 'owned'</script><img src=\"http://127.0.0.1:9/x\">", text)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.open(page, 1280)
	if got := b.eval("document.title"); got == "owned" || len(b.complaints) < 2 {
		t.Errorf("the title is %v, the complaints %q", got, b.complaints)
	}
}
