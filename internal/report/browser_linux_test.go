package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// browser is Chromium without a window. It takes commands of the DevTools protocol from one pipe, and answers through
// another; each ends with a zero byte.
type browser struct {
	t          *testing.T
	commands   io.Writer
	answers    *bufio.Reader
	number     int
	session    string
	complaints []string // what the page's console has said, and the requests beyond the page
	seen       map[string]bool
	log        proc.Buffer
}

const browserLimit = 2 * time.Minute // for all that a test does with it: a hang, not a slow machine

func newBrowser(t *testing.T) *browser {
	t.Helper()
	program := proc.RequireProgram(t, "chromium-headless-shell", "chromium-headless-shell")
	in, commands, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, commands: commands, answers: bufio.NewReader(answers), seen: map[string]bool{}}
	// The sandbox needs a user that is not root. The pages are our own.
	cmd := exec.Command(program, "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "--hide-scrollbars", "--force-color-profile=srgb",
		"about:blank")
	cmd.ExtraFiles = []*os.File{in, out}
	cmd.Stdout, cmd.Stderr = &b.log, &b.log
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	watchdog := time.AfterFunc(browserLimit, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		commands.Close() // it ends the browser
		cmd.Wait()
		watchdog.Stop()
		answers.Close()
	})
	var target struct{ TargetID string }
	b.command("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.command("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.command(domain+".enable", nil, nil)
	}
	b.command("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
	return b
}

// answer is an answer to a command, or an event.
type answer struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

// next reads an answer. Of events it keeps what a page must not do.
func (b *browser) next() answer {
	b.t.Helper()
	text, err := b.answers.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("the browser has ended, within %v or not: %v\n%s", browserLimit, err, b.log.String())
	}
	var a answer
	if err := json.Unmarshal(text[:len(text)-1], &a); err != nil {
		b.t.Fatalf("%v: %.200s", err, text)
	}
	var request struct{ Request struct{ URL string } }
	switch a.Method {
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
		b.complaints = append(b.complaints, a.Method+": "+string(a.Params))
	case "Network.requestWillBeSent":
		if err := json.Unmarshal(a.Params, &request); err != nil {
			b.t.Fatal(err)
		}
		if url := request.Request.URL; !strings.HasPrefix(url, "file:") && !strings.HasPrefix(url, "data:") {
			b.complaints = append(b.complaints, "a request of "+url)
		}
	}
	if a.Method != "" {
		b.seen[a.Method] = true
	}
	return a
}

// command runs a command, and decodes its result.
func (b *browser) command(method string, params any, result any) {
	b.t.Helper()
	b.number++
	c := map[string]any{"id": b.number, "method": method}
	if params != nil {
		c["params"] = params
	}
	if b.session != "" {
		c["sessionId"] = b.session
	}
	text, err := json.Marshal(c)
	if err == nil {
		_, err = b.commands.Write(append(text, 0))
	}
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", method, err, b.log.String())
	}
	a := b.next()
	for ; a.ID != b.number; a = b.next() {
	}
	if a.Error != nil {
		b.t.Fatalf("%s: %s", method, a.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(a.Result, result); err != nil {
			b.t.Fatalf("%s: %v: %.200s", method, err, a.Result)
		}
	}
}

// open opens a page in a window of that width, and waits until it has been drawn.
func (b *browser) open(file string, width int) {
	b.t.Helper()
	b.resize(width)
	b.seen["Page.loadEventFired"] = false
	b.command("Page.navigate", map[string]any{"url": "file://" + file}, nil)
	for !b.seen["Page.loadEventFired"] {
		b.next()
	}
	b.drawn()
	if got := b.eval("document.documentElement.dataset.ready"); got != "yes" {
		b.t.Errorf("the script of the page has not come to its end: %v", b.complaints)
	}
}

func (b *browser) resize(width int) {
	b.t.Helper()
	b.command("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900,
		"deviceScaleFactor": 1, "mobile": false}, nil)
}

// drawn waits for three frames: in the first the charts learn their widths, and in the second they are drawn.
func (b *browser) drawn() {
	b.t.Helper()
	b.eval("new Promise(f => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => f(1)))))")
}

// scheme makes the user one who prefers dark, or light.
func (b *browser) scheme(name string) {
	b.t.Helper()
	b.command("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]string{
		"name": "prefers-color-scheme", "value": name}}}, nil)
}

// work returns the CPU time that the page's thread has taken since newBrowser, and how much of it in scripts: other
// programs do not make it longer, as they do the time until a page is there.
func (b *browser) work() (all, scripts time.Duration) {
	b.t.Helper()
	var result struct {
		Metrics []struct {
			Name  string
			Value float64 // seconds
		}
	}
	b.command("Performance.getMetrics", nil, &result)
	for _, m := range result.Metrics {
		took := time.Duration(m.Value * float64(time.Second))
		switch m.Name {
		case "TaskDuration":
			all = took
		case "ScriptDuration":
			scripts = took
		}
	}
	return all, scripts
}

// eval returns the value of an expression in the page.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var result struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.command("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true},
		&result)
	if result.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, result.ExceptionDetails)
	}
	return result.Result.Value
}

// drag moves the mouse over an element, from one part of its size to another, with its button pressed.
func (b *browser) drag(selector string, fromX, fromY, toX, toY float64) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q).scrollIntoView({block: 'center'})", selector))
	box := b.eval(fmt.Sprintf("(({x, y, width, height}) => [x, y, width, height])"+
		"(document.querySelector(%q).getBoundingClientRect())", selector)).([]any)
	number := func(i int) float64 { return box[i].(float64) }
	for _, e := range []struct {
		kind string
		x, y float64
	}{{"mousePressed", fromX, fromY}, {"mouseMoved", toX, toY}, {"mouseReleased", toX, toY}} {
		b.command("Input.dispatchMouseEvent", map[string]any{"type": e.kind, "x": number(0) + e.x*number(2),
			"y": number(1) + e.y*number(3), "button": "left", "buttons": 1, "clickCount": 1}, nil)
	}
}

// shoot writes a picture of the whole page into the folder of the flag -shots; without the flag it drops the picture.
func (b *browser) shoot(name string) {
	b.t.Helper()
	b.drawn()
	size := b.eval("[innerWidth, document.documentElement.scrollHeight]").([]any)
	var picture struct{ Data []byte }
	b.command("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}}, &picture)
	if len(picture.Data) < 10_000 {
		b.t.Errorf("the picture %s has %d bytes", name, len(picture.Data))
	}
	if *shots == "" {
		return
	}
	err := os.MkdirAll(*shots, 0o777)
	if err == nil {
		err = os.WriteFile(filepath.Join(*shots, name+".png"), picture.Data, 0o666)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// quiet expects that the page has complained of nothing, and has asked for nothing.
func (b *browser) quiet() {
	b.t.Helper()
	for _, c := range b.complaints {
		b.t.Errorf("%.600s", c)
	}
	for line := range strings.Lines(b.log.String()) { // some messages of the console come here only
		if strings.Contains(line, ":CONSOLE") {
			b.t.Error(line)
		}
	}
}

// rows are the values of a table of the page, all of them, by heading.
func (b *browser) rows(id string) (rows []map[string]string) {
	b.t.Helper()
	text := b.eval(fmt.Sprintf(`(() => {
		const box = document.getElementById(%q), more = box.querySelector(".more");
		if (more && !more.hidden) more.click();
		const heads = [...box.querySelectorAll("th")].map(h => h.textContent);
		return JSON.stringify([...box.querySelectorAll("tbody tr")].map(r =>
			Object.fromEntries([...r.children].map((d, i) => [heads[i], d.dataset.v]))));
	})()`, id)).(string)
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		b.t.Fatal(err)
	}
	return rows
}

// notBlank expects that every chart has several colours.
func (b *browser) notBlank(charts int) {
	b.t.Helper()
	got := b.eval(`JSON.stringify([...document.querySelectorAll("canvas")].map(c => {
		const copy = new OffscreenCanvas(c.width, c.height).getContext("2d", {willReadFrequently: true});
		copy.drawImage(c, 0, 0);
		const d = new Uint32Array(copy.getImageData(0, 0, c.width, c.height).data.buffer);
		return [c.parentElement.id, new Set(d).size];
	}).filter(([id, n], i, all) => n < 4 || all.length !== ` + fmt.Sprint(charts) + `))`)
	if got != "[]" {
		b.t.Errorf("charts and their colours: %v, want %d charts", got, charts)
	}
}
