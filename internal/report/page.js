"use strict";
// The page of a report. Names of functions, files and hosts come from other processes: they are set as text, and never
// as markup. Charts are canvases, so that a thousand ranks make as many nodes as two.
(() => {
	const data = JSON.parse(document.getElementById("data").textContent);
	const report = data.report, line = data.timeline, ranks = report.ranks || [];
	const sites = report.sites || [], waits = report.waits || [], sizes = report.sizes || [];
	const rankCount = ranks.length;
	const $ = id => document.getElementById(id);

	function el(tag, text, className) {
		const e = document.createElement(tag);
		if (text !== undefined) e.textContent = text;
		if (className) e.className = className;
		return e;
	}

	// Numbers in words.

	function scaled(x, units) {
		let [size, name] = units[0];
		for (const [s, n] of units) if (Math.abs(x) >= s) [size, name] = [s, n];
		const v = x / size, a = Math.abs(v);
		return (Number.isInteger(v) ? String(v) : v.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : 2)) + " " + name;
	}
	const timeUnits = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
	const time = ns => scaled(ns, timeUnits);
	const bytes = n => scaled(n, [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"]]);
	const count = n => n.toLocaleString("en-US");
	const percent = (part, whole) => {
		const v = whole > 0 ? 100 * part / whole : 0;
		return (v === 0 || v >= 9.95 ? v.toFixed(0) : v.toFixed(1)) + " %";
	};
	const many = (n, one, several) => count(n) + " " + (n === 1 ? one : several);
	const last = path => String(path).split("/").pop();
	const place = s => s.file ? last(s.file) + ":" + s.line : "";
	const rangeOf = (a, b) => a === b ? "rank " + a : "ranks " + a + "–" + b;
	const sum = (rows, of) => rows.reduce((s, r) => s + of(r), 0);
	const most = (rows, of) => rows.reduce((s, r) => Math.max(s, of(r)), 0);

	// Tables. A column has a heading, and for a row its value, by which it is sorted, and its text or node.

	function table(id, columns, rows, none) {
		const box = $(id);
		if (rows.length === 0) {
			box.append(el("p", none, "muted"));
			return;
		}
		const first = 15;
		let shown = first, sorted = rows, by = -1, up = false;
		const frame = el("div", undefined, "table"), t = el("table"), head = el("tr"), body = el("tbody");
		const heads = columns.map((c, i) => {
			const th = el("th", undefined, c.number ? "number" : ""), b = el("button", c.head);
			b.addEventListener("click", () => {
				up = by === i ? !up : !c.number;
				by = i;
				const sign = up ? 1 : -1, of = c.of;
				sorted = rows.slice().sort((a, b) => {
					const x = of(a), y = of(b);
					return sign * (x < y ? -1 : x > y ? 1 : 0);
				});
				heads.forEach((h, k) => k === by ? h.setAttribute("aria-sort", up ? "ascending" : "descending")
					: h.removeAttribute("aria-sort"));
				fill();
			});
			th.scope = "col";
			th.append(b);
			head.append(th);
			return th;
		});
		const all = el("button", "Show all " + count(rows.length), "more");
		all.addEventListener("click", () => { shown = Infinity; fill(); });
		function fill() {
			body.replaceChildren(...sorted.slice(0, shown).map(row => {
				const tr = el("tr");
				for (const c of columns) {
					const v = c.of(row), td = el("td", undefined, c.number ? "number" : "");
					td.append(c.show ? c.show(row) : String(v));
					td.dataset.v = v;
					if (c.hint || c.number) td.title = c.hint ? c.hint(row) : typeof v === "number" ? count(v) : v;
					tr.append(td);
				}
				return tr;
			}));
			all.hidden = sorted.length <= shown;
		}
		const thead = el("thead");
		thead.append(head);
		t.append(thead, body);
		frame.append(t);
		box.append(frame, all);
		fill();
	}

	// Charts.

	let colours = new Map();
	function colour(name) {
		if (!colours.has(name)) {
			colours.set(name, getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
		}
		return colours.get(name);
	}
	const redrawAll = [];
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
		colours = new Map();
		redrawAll.forEach(f => f());
	});

	const tip = $("tip");
	function showTip(text, e) {
		tip.hidden = !text;
		if (!text) return;
		tip.textContent = text;
		const w = tip.offsetWidth, h = tip.offsetHeight;
		tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - w - 8)) + "px";
		tip.style.top = Math.max(4, e.clientY + 18 + h > innerHeight ? e.clientY - h - 12 : e.clientY + 18) + "px";
	}

	// chart makes a canvas that is as wide as its box. at says what is under a point of it.
	function chart(id, label, height, draw, at) {
		const box = $(id), canvas = el("canvas"), c = canvas.getContext("2d");
		canvas.setAttribute("role", "img");
		canvas.setAttribute("aria-label", label);
		box.append(canvas);
		const redraw = () => {
			const w = box.clientWidth, d = devicePixelRatio || 1, h = typeof height === "function" ? height(w) : height;
			if (w === 0) return;
			canvas.width = Math.round(w * d);
			canvas.height = Math.round(h * d);
			canvas.style.height = h + "px";
			c.setTransform(d, 0, 0, d, 0, 0);
			c.font = "12px system-ui, sans-serif";
			c.textBaseline = "middle";
			draw(c, w, h);
		};
		let width = 0;
		new ResizeObserver(() => {
			if (box.clientWidth !== width) {
				width = box.clientWidth;
				requestAnimationFrame(redraw); // it changes the height of the box, which is being observed
			}
		}).observe(box);
		redrawAll.push(redraw);
		if (at) {
			canvas.addEventListener("pointermove", e => {
				const r = canvas.getBoundingClientRect();
				showTip(at(e.clientX - r.left, e.clientY - r.top), e);
			});
			canvas.addEventListener("pointerleave", () => showTip(""));
		}
		return { canvas, redraw };
	}

	function text(c, s, x, y, align, colourName) {
		c.fillStyle = colour(colourName || "muted");
		c.textAlign = align;
		c.fillText(s, x, y);
	}

	// fit shortens a text to a width.
	function fit(c, s, width) {
		s = String(s).slice(0, 200);
		if (c.measureText(s).width <= width) return s;
		while (s && c.measureText(s + "…").width > width) s = s.slice(0, -1);
		return s ? s + "…" : "";
	}

	// steps is the distance of the marks of an axis, of which there are about so many.
	function steps(long, marks, binary) {
		const raw = Math.max(long, 1e-9) / marks;
		if (binary) return 2 ** Math.ceil(Math.log2(raw));
		const p = 10 ** Math.floor(Math.log10(raw));
		return [1, 2, 5, 10].find(k => k * p >= raw * 0.999) * p;
	}

	function legend(box, items) {
		for (const [name, words] of items) {
			const span = el("span"), swatch = el("i");
			swatch.style.background = "var(--" + name + ")";
			span.append(swatch, words);
			box.append(span);
		}
	}

	// hostRuns are runs of places with ranks of one host.
	function hostRuns(rankAt) {
		const runs = [];
		for (let i = 0; i < rankCount; i++) {
			const host = ranks[rankAt(i)].host, run = runs[runs.length - 1];
			if (run && run.host === host) run.end = i + 1;
			else runs.push({ host, begin: i, end: i + 1 });
		}
		return runs;
	}
	const hosts = new Set(ranks.map(r => r.host)).size;
	const runs = hostRuns(i => i);

	// bars draws a stacked bar for each rank, or the mean of a range of ranks where there is no room for all.
	function bars(id, label, parts, format, binary, range) {
		const left = 72, right = 8, top = 10, named = runs.length <= 12 && hosts > 1;
		const bottom = named ? 40 : 24;
		const total = r => sum(parts, p => p.of(r));
		const top1 = Math.max(1, most(ranks, total));
		let per = 1, groups = rankCount, width = 0;
		const group = k => ranks.slice(k * per, Math.min(rankCount, (k + 1) * per));
		const { canvas } = chart(id, label, 220, (c, w, h) => {
			width = w - left - right;
			per = Math.max(1, Math.ceil(rankCount / Math.floor(width / 4)));
			groups = Math.ceil(rankCount / per);
			canvas.dataset.per = per;
			$(range).textContent = per > 1 ? "There are more ranks than bars: each bar is the mean of " + per +
				" ranks, and the thin line above it their highest." : "";
			const high = h - top - bottom, y = v => top + high - v / top1 * high, each = width / groups;
			const step = steps(top1, binary ? 4 : 6, binary);
			c.strokeStyle = colour("line");
			for (let v = 0; v <= top1 * 1.001; v += step) {
				c.beginPath();
				c.moveTo(left, Math.round(y(v)) + 0.5);
				c.lineTo(w - right, Math.round(y(v)) + 0.5);
				c.stroke();
				text(c, format(v), left - 8, y(v), "right");
			}
			const bar = each > 8 ? Math.min(each * 0.8, 48) : each;
			for (let k = 0; k < groups; k++) {
				const g = group(k), x = left + each * (k + 0.5) - bar / 2;
				let from = 0;
				for (const p of parts) {
					const v = sum(g, p.of) / g.length;
					c.fillStyle = colour(p.colour);
					c.fillRect(x, y(from + v), bar, y(from) - y(from + v));
					from += v;
				}
				if (per > 1) {
					c.fillStyle = colour("muted");
					c.fillRect(x, y(most(g, total)), bar, 1);
				}
			}
			const skip = Math.max(1, Math.ceil(groups * 44 / width));
			for (let k = 0; k < groups; k += skip) {
				text(c, String(k * per), left + each * (k + 0.5), h - bottom + 15, "center");
			}
			text(c, "rank", left - 8, h - bottom + 15, "right");
			for (const run of named ? runs : []) {
				const a = left + run.begin / per * each, b = left + run.end / per * each;
				if (run.begin > 0) {
					c.fillStyle = colour("muted");
					c.fillRect(Math.round(a), top, 1, h - top);
				}
				text(c, fit(c, run.host, b - a - 6), (a + b) / 2, h - 8, "center");
			}
		}, x => {
			const k = Math.floor((x - left) / width * groups);
			if (x < left || k < 0 || k >= groups) return "";
			const g = group(k), first = g[0].rank;
			const mean = g.length > 1 ? ", on average" : "";
			return [rangeOf(first, first + g.length - 1) + " on " + g[0].host + mean,
				...parts.map(p => p.name + ": " + format(sum(g, p.of) / g.length))].join("\n");
		});
	}

	// The parts of the page, from the top.

	const all = { time: sum(ranks, r => r.time), calls: sum(ranks, r => r.calls), inCalls: sum(ranks, r => r.in_calls),
		waiting: sum(ranks, r => r.waiting), computing: sum(ranks, r => r.computing) };
	const matrix = report.matrix || [];
	document.title = report.program + ": report";
	$("title").textContent = report.program;
	$("what").textContent = many(rankCount, "rank", "ranks") + " on " + many(hosts, "host", "hosts") + ", started " +
		report.started;
	for (const [name, value] of [
		["time", time(most(ranks, r => r.time))],
		["in calls", percent(all.inCalls, all.time)],
		["waiting for late ranks", percent(all.waiting, all.time)],
		["imbalance", report.imbalance.toFixed(2)],
		["calls", count(all.calls)],
		["messages", count(sum(matrix, c => c.messages))],
		["their bytes", bytes(sum(matrix, c => c.bytes))],
	]) {
		const tile = el("div");
		tile.append(el("dt", name), el("dd", value));
		$("tiles").append(tile);
	}
	for (const f of report.findings || []) $("findings").append(el("li", f));
	if (report.timeline.note) $("note").textContent = "Note: " + report.timeline.note + ".";

	const parts = [
		{ name: "computing", colour: "compute", of: r => r.computing },
		{ name: "waiting for late ranks", colour: "wait", of: r => Math.min(r.waiting, r.in_calls) },
		{ name: "in calls, not waiting", colour: "move", of: r => Math.max(0, r.in_calls - r.waiting) },
	];
	const key = el("p", undefined, "legend");
	legend(key, parts.map(p => [p.colour, p.name]));
	$("times").before(key);
	bars("times", "Time of each rank, in calls and computing", parts, time, false, "times-range");
	$("imbalance").textContent = "The rank that computes longest takes " + report.imbalance.toFixed(2) +
		" times the mean; 1.00 is even.";
	bars("cpu", "CPU time of each rank", [{ name: "CPU time", colour: "move", of: r => r.cpu }], time, false, "cpu-range");
	bars("memory", "Most memory of each rank", [{ name: "memory", colour: "move", of: r => r.memory }], bytes, true,
		"memory-range");

	const siteName = i => sites[i] ? sites[i].op + (sites[i].file ? " at " + place(sites[i]) : "") : "?";
	table("sites", [
		{ head: "call", of: s => s.op },
		{ head: "line", of: s => place(s), hint: s => s.file },
		{ head: "function", of: s => last(s.func), hint: s => s.func },
		{ head: "ranks", number: true, of: s => s.ranks, show: s => s.ranks ? count(s.ranks) : "–" },
		{ head: "calls", number: true, of: s => s.calls, show: s => count(s.calls) },
		{ head: "bytes", number: true, of: s => s.bytes, show: s => bytes(s.bytes) },
		{ head: "time", number: true, of: s => s.time, show: s => time(s.time) },
		{ head: "of calls", number: true, of: s => s.time / (all.inCalls || 1),
			show: s => percent(s.time, all.inCalls), hint: () => "of the time in all calls" },
		{ head: "waiting", number: true, of: s => s.waiting, show: s => time(s.waiting) },
		{ head: "waiting, rest", of: s => s.waiting / (s.time || 1), show: s => {
			const box = el("span", undefined, "parts"), part = el("b");
			part.style.width = Math.min(100, 100 * s.waiting / (s.time || 1)) + "%";
			box.append(part);
			return box;
		}, hint: s => percent(s.waiting, s.time) + " waiting" },
		{ head: "longest", number: true, of: s => s.longest, show: s => time(s.longest) },
	], sites, "The program has made no calls.");

	table("waits", [
		{ head: "rank", number: true, of: w => w.rank },
		{ head: "waits in", of: w => siteName(w.site) },
		{ head: "for rank", number: true, of: w => w.for },
		{ head: "which is late in", of: w => siteName(w.for_site) },
		{ head: "as", of: w => w.why.replace("late in a collective call", "the last in a collective call") },
		{ head: "times", number: true, of: w => w.times, show: w => count(w.times) },
		{ head: "time", number: true, of: w => w.time, show: w => time(w.time) },
		{ head: "of its time", number: true, of: w => w.time / (ranks[w.rank].time || 1),
			show: w => percent(w.time, ranks[w.rank].time), hint: w => "of the time of rank " + w.rank },
	], waits, "No rank has waited for another one.");
	if (report.other_waits.rows > 0) {
		$("waits-rest").textContent = "The table has the longest " + count(waits.length) + "; " +
			many(report.other_waits.rows, "other", "others") + " take " + time(report.other_waits.time) + " together.";
	}

	table("transports", [
		{ head: "transport", of: t => t.transport || "not connected any more" },
		{ head: "pairs of ranks", number: true, of: t => t.pairs, show: t => count(t.pairs) },
		{ head: "messages", number: true, of: t => t.messages, show: t => count(t.messages) },
		{ head: "bytes", number: true, of: t => t.bytes, show: t => bytes(t.bytes) },
	], report.transports || [], "No messages were sent outside of collective calls.");
	table("algorithms", [
		{ head: "call", of: a => a.op },
		{ head: "algorithm", of: a => a.algorithms },
		{ head: "bytes from", number: true, of: a => a.from, show: a => bytes(a.from) },
		{ head: "to", number: true, of: a => a.to, show: a => bytes(a.to) },
		{ head: "ranks", number: true, of: a => a.ranks, show: a => count(a.ranks) },
	], report.algorithms || [], "No collective call was made.");
	table("ranks", [
		{ head: "rank", number: true, of: r => r.rank },
		{ head: "host", of: r => r.host, hint: r => r.host },
		{ head: "transport", of: r => r.transport },
		{ head: "time", number: true, of: r => r.time, show: r => time(r.time) },
		{ head: "computing", number: true, of: r => r.computing, show: r => time(r.computing) },
		{ head: "in calls", number: true, of: r => r.in_calls, show: r => time(r.in_calls) },
		{ head: "waiting", number: true, of: r => r.waiting, show: r => time(r.waiting) },
		{ head: "calls", number: true, of: r => r.calls, show: r => count(r.calls) },
		{ head: "CPU time", number: true, of: r => r.cpu, show: r => time(r.cpu) },
		{ head: "memory", number: true, of: r => r.memory, show: r => bytes(r.memory) },
	], ranks, "There are no ranks.");

	// Sizes of messages.

	if (sizes.length === 0) {
		$("sizes").append(el("p", "No messages were sent outside of collective calls.", "muted"));
	} else {
		const rows = [], known = new Map(sizes.map(s => [s.from, s]));
		for (let from = sizes[0].from, end = sizes[sizes.length - 1].from; from <= end; from = from === 0 ? 1 : from * 2) {
			rows.push(known.get(from) || { from, to: from * 2 - 1, messages: 0 });
		}
		const high = most(rows, r => r.messages) || 1, each = 21;
		const sizeRange = r => r.from === r.to ? bytes(r.from) : r.from >= 1024 ? bytes(r.from) + " – " + bytes(r.to + 1)
			: r.from + " – " + r.to + " B";
		chart("sizes", "Histogram of the lengths of messages", rows.length * each + 22, (c, w) => {
			const left = 126, right = 86;
			rows.forEach((r, i) => {
				const y = i * each + each / 2;
				text(c, sizeRange(r), left - 8, y, "right");
				const long = r.messages / high * (w - left - right);
				c.fillStyle = colour("move");
				c.fillRect(left, y - 7, r.messages ? Math.max(1, long) : 0, 14);
				text(c, count(r.messages), left + long + 7, y, "left", "text");
			});
			text(c, "length", left - 8, rows.length * each + 12, "right");
			text(c, "messages", left, rows.length * each + 12, "left");
		}, (x, y) => {
			const r = rows[Math.floor(y / each)];
			return r ? sizeRange(r) + ": " + many(r.messages, "message", "messages") : "";
		});
	}

	// The matrix. Its axes have the ranks in the order of their hosts.

	(() => {
		if (matrix.length === 0) {
			$("matrix").append(el("p", "No messages were sent outside of collective calls.", "muted"));
			return;
		}
		const per = report.cell_ranks, groups = Math.ceil(rankCount / per), order = data.order;
		const blocks = hostRuns(i => order[i]), moved = order.some((r, i) => r !== i);
		const most1 = most(matrix, c => c.bytes);
		const byPlace = new Map(matrix.map(c => [c.from / per * groups + c.to / per, c]));
		const left = 44, top = 26;
		let side = 0;
		$("matrix-range").textContent = (per > 1 ? "A cell is the sum of " + per + " ranks by " + per + "." : "") +
			(moved ? " The ranks are in the order of their hosts." : "");
		const share = v => Math.log(v + 1) / Math.log(most1 + 2);
		const mix = (a, b, f) => "rgb(" + [1, 3, 5].map(i => Math.round(parseInt(a.slice(i, i + 2), 16) * (1 - f) +
			parseInt(b.slice(i, i + 2), 16) * f)).join(",") + ")";
		const shade = v => mix(colour("low"), colour("high"), share(v));
		const nameOf = p => {
			const a = p * per, b = Math.min(rankCount, a + per) - 1;
			return per === 1 ? "rank " + order[a] : moved ? "places " + a + "–" + b : rangeOf(a, b);
		};
		const sideOf = w => Math.max(80, Math.min(w - left - 10, Math.max(220, Math.min(520, groups * 40))));
		chart("matrix", "Bytes that each rank has sent to each other rank", w => sideOf(w) + top + 52, (c, w) => {
			side = sideOf(w);
			const cell = side / groups, gap = cell > 8 ? 1 : 0;
			c.fillStyle = colour("panel");
			c.fillRect(left, top, side, side);
			for (const m of matrix) {
				c.fillStyle = shade(m.bytes);
				c.fillRect(left + m.to / per * cell, top + m.from / per * cell, cell - gap, cell - gap);
			}
			c.fillStyle = colour("text");
			for (const b of blocks.slice(1)) {
				const at = Math.round(b.begin / per * cell);
				if (blocks.length <= side / 6) {
					c.fillRect(left + at - 1, top, 1, side);
					c.fillRect(left, top + at - 1, side, 1);
				}
			}
			const skip = Math.max(1, Math.ceil(30 / cell));
			for (let g = 0; g < groups; g += skip) {
				text(c, String(order[g * per]), left + (g + 0.5) * cell, top - 10, "center");
				text(c, String(order[g * per]), left - 8, top + (g + 0.5) * cell, "right");
			}
			for (let i = 0; i < 100; i++) {
				c.fillStyle = shade(Math.exp(i / 99 * Math.log(most1 + 1)) - 1);
				c.fillRect(left + i * side / 100, top + side + 14, side / 100 + 0.5, 10);
			}
			text(c, "1 B", left, top + side + 36, "left");
			text(c, bytes(most1), left + side, top + side + 36, "right");
		}, (x, y) => {
			const to = Math.floor((x - left) / side * groups), from = Math.floor((y - top) / side * groups);
			if (to < 0 || from < 0 || to >= groups || from >= groups) return "";
			const m = byPlace.get(from * groups + to) || { messages: 0, bytes: 0 };
			return nameOf(from) + " to " + nameOf(to) + "\n" + many(m.messages, "message", "messages") + ", " +
				bytes(m.bytes) + "\non " + ranks[order[from * per]].host + " and " + ranks[order[to * per]].host;
		});
	})();

	// The timeline. A call has a colour by its kind.

	(() => {
		const classes = [["send", "send"], ["recv", "receive, probe"], ["request", "wait or test for requests"],
			["collective", "collective call"], ["window", "window"], ["other", "other calls"]];
		const classOf = { send: 0, sendrecv: 0, recv: 1, probe: 1, wait: 2, collective: 3, put: 4, get: 4, sync: 4 };
		const joined = -1, fields = 6;
		// By rank: numbers of calls, in the order of their begins.
		const rows = line.calls.map(flat => {
			const n = (flat || []).length / fields;
			const row = { n, site: new Int32Array(n), begin: new Float64Array(n), end: new Float64Array(n),
				bytes: new Float64Array(n), peer: new Float64Array(n), waited: new Float64Array(n),
				kind: new Uint8Array(n), longest: 0 };
			for (let i = 0, at = 0; i < n; i++) {
				const k = i * fields;
				at += flat[k + 1];
				row.site[i] = flat[k];
				row.begin[i] = at;
				row.end[i] = at + flat[k + 2];
				row.bytes[i] = flat[k + 3];
				row.peer[i] = flat[k + 4];
				row.waited[i] = flat[k + 5];
				const s = sites[flat[k]];
				row.kind[i] = s ? classOf[s.kind] ?? 5 : 5;
				row.longest = Math.max(row.longest, flat[k + 2]);
			}
			return row;
		});
		const arrows = line.arrows || [], arrowCount = arrows.length / 6;
		const drawn = sum(rows, r => r.site.reduce((n, s) => n + (s === joined ? 0 : 1), 0));
		const words = [];
		if (line.sampled) {
			words.push(count(drawn) + " of " + count(line.all_calls) + " calls are drawn one by one, the longest of each " +
				"rank; grey bars are several short calls, the darker the more of the time they take.");
		}
		if (arrowCount < line.all_arrows) {
			words.push(count(arrowCount) + " of " + count(line.all_arrows) + " messages are drawn, evenly chosen.");
		}
		if (report.timeline.unkept > 0) {
			words.push("The timeline has the first calls of each rank only: " + many(report.timeline.unkept, "later call is",
				"later calls are") + " in the sums and not here.");
		}
		$("timeline-range").textContent = words.join(" ");
		const key = $("legend");
		legend(key, [...classes, ["wait", "waits for a late rank"], ["compute", "computes"],
			...(line.sampled ? [["joined", "several short calls"]] : [])]);

		const length = Math.max(1, line.length), least = 100; // nanoseconds of the closest view
		const left = 72, bottom = 24, detailed = 5;
		let view = { from: 0, to: length, first: 0, end: rankCount }, drag = null, width = 1, high = 1;

		function show(v) {
			const long = Math.min(length, Math.max(least, v.to - v.from));
			const from = Math.min(Math.max(0, v.from), length - long);
			const tall = Math.min(rankCount, Math.max(1, Math.round(v.end - v.first)));
			const first = Math.min(Math.max(0, Math.round(v.first)), rankCount - tall);
			view = { from, to: from + long, first, end: first + tall };
			redraw();
		}
		const scale = f => {
			const mid = (view.from + view.to) / 2, half = (view.to - view.from) / 2 * f;
			const rank = (view.first + view.end) / 2, tall = (view.end - view.first) / 2 * f;
			const ranks = f > 1 ? { first: rank - tall, end: rank + tall } : { first: view.first, end: view.end };
			show({ from: mid - half, to: mid + half, ...ranks });
		};
		const move = (times, of) => {
			const d = (view.to - view.from) * times, r = Math.round((view.end - view.first) * (of || 0)) || Math.sign(of || 0);
			show({ from: view.from + d, to: view.to + d, first: view.first + r, end: view.end + r });
		};
		const xOf = t => left + (t - view.from) / (view.to - view.from) * width;
		const tOf = x => view.from + (x - left) / width * (view.to - view.from);

		// visible are the first and last calls of a row that may be seen.
		function visible(row) {
			const bound = t => {
				let a = 0, b = row.n;
				while (a < b) {
					const m = (a + b) >> 1;
					if (row.begin[m] < t) a = m + 1; else b = m;
				}
				return a;
			};
			return [bound(view.from - row.longest), bound(view.to)];
		}

		// shareOf is how much of their time joined calls take.
		const shareOf = (row, i) => Math.min(1, row.peer[i] / Math.max(1, row.end[i] - row.begin[i]));

		function drawRow(c, row, y, tall) {
			c.fillStyle = colour("compute");
			c.globalAlpha = 0.45;
			c.fillRect(Math.max(left, xOf(0)), y, Math.min(left + width, xOf(length)) - Math.max(left, xOf(0)), tall);
			const [a, b] = visible(row);
			let free = -1; // where the last bar has ended: what is not wider than a part of a pixel is drawn once
			for (let i = a; i < b; i++) {
				if (row.end[i] < view.from) continue;
				const x = Math.max(left, xOf(row.begin[i])), end = Math.min(left + width, xOf(row.end[i]));
				if (end < free + 0.25 && end - x < 0.25) continue;
				const wide = Math.max(0.6, end - x);
				const several = row.site[i] === joined;
				c.fillStyle = colour(several ? "joined" : classes[row.kind[i]][0]);
				c.globalAlpha = several ? 0.25 + 0.75 * shareOf(row, i) : 1;
				c.fillRect(x, y, wide, tall);
				if (row.waited[i] > 0) {
					const w = Math.min(left + width, xOf(row.begin[i] + row.waited[i])) - x;
					if (w > 0) {
						c.fillStyle = colour("wait");
						c.globalAlpha = 1;
						c.fillRect(x, y, Math.min(w, wide), tall);
					}
				}
				free = x + wide;
			}
			c.globalAlpha = 1;
		}

		// drawMean draws the mean of several ranks: in each column the class that takes most, the paler the less it takes.
		const kinds = [...classes.map(k => k[0]), "joined", "wait"];
		function drawMean(c, group, y, tall) {
			const n = Math.max(1, Math.ceil(width / 2)), took = kinds.map(() => new Float32Array(n));
			const add = (k, from, to, part) => {
				from = Math.max(0, (from - view.from) / (view.to - view.from) * n);
				to = Math.min(n, (to - view.from) / (view.to - view.from) * n);
				for (let i = Math.floor(from); i < to; i++) took[k][i] += part * (Math.min(to, i + 1) - Math.max(from, i));
			};
			for (const row of group) {
				const [a, b] = visible(row);
				for (let i = a; i < b; i++) {
					if (row.end[i] < view.from) continue;
					const start = row.begin[i] + row.waited[i];
					if (row.waited[i] > 0) add(7, row.begin[i], start, 1);
					const several = row.site[i] === joined;
					add(several ? 6 : row.kind[i], start, row.end[i], several ? shareOf(row, i) : 1);
				}
			}
			c.fillStyle = colour("compute");
			c.globalAlpha = 0.45;
			c.fillRect(left, y, width, tall);
			const levels = 8;
			let from = 0, now = -1;
			for (let i = 0; i <= n; i++) {
				let k = -1, best = 0, all = 0;
				for (let j = 0; i < n && j < kinds.length; j++) {
					all += took[j][i];
					if (took[j][i] > best) [k, best] = [j, took[j][i]];
				}
				const level = k < 0 ? 0 : Math.min(levels, Math.ceil(all / group.length * levels));
				const next = k * (levels + 1) + level;
				if (next === now && i < n) continue;
				if (now > 0 && now % (levels + 1) > 0) {
					c.fillStyle = colour(kinds[Math.floor(now / (levels + 1))]);
					c.globalAlpha = (now % (levels + 1)) / levels;
					c.fillRect(left + from * width / n, y, (i - from) * width / n, tall);
				}
				[from, now] = [i, next];
			}
			c.globalAlpha = 1;
		}

		function drawArrows(c, tall) {
			const seen = [];
			for (let i = 0; i < arrowCount; i++) {
				const k = i * 6, begin = arrows[k + 2], end = begin + arrows[k + 3];
				const inRanks = r => r >= view.first && r < view.end;
				if (end >= view.from && begin <= view.to && arrows[k] !== arrows[k + 1] && inRanks(arrows[k]) &&
					inRanks(arrows[k + 1])) seen.push(k);
			}
			const step = Math.ceil(seen.length / 1500) || 1;
			c.strokeStyle = c.fillStyle = colour("arrow");
			const few = seen.length / step <= 150;
			c.globalAlpha = few ? 0.7 : 0.3;
			for (let i = 0; i < seen.length; i += step) {
				const k = seen[i], x = xOf(arrows[k + 2]), end = xOf(arrows[k + 2] + arrows[k + 3]);
				const down = arrows[k + 1] > arrows[k];
				const y = (arrows[k] - view.first + (down ? 0.8 : 0.2)) * tall;
				const to = (arrows[k + 1] - view.first + (down ? 0.15 : 0.85)) * tall;
				c.beginPath();
				c.moveTo(x, y);
				c.lineTo(end, to);
				c.stroke();
				if (few) {
					const angle = Math.atan2(to - y, end - x);
					c.beginPath();
					c.moveTo(end, to);
					c.lineTo(end - 6 * Math.cos(angle - 0.4), to - 6 * Math.sin(angle - 0.4));
					c.lineTo(end - 6 * Math.cos(angle + 0.4), to - 6 * Math.sin(angle + 0.4));
					c.fill();
				}
			}
			c.globalAlpha = 1;
			return step > 1 ? ", every " + step + "th message" : "";
		}

		function drawAxis(c, h) {
			const long = view.to - view.from, step = steps(long, Math.max(2, width / 90), false);
			let [size, name] = timeUnits[0];
			for (const [s, n] of timeUnits) if (view.to >= s) [size, name] = [s, n];
			const places = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
			for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
				const x = Math.round(xOf(t)) + 0.5;
				c.strokeStyle = colour("line");
				c.beginPath();
				c.moveTo(x, 0);
				c.lineTo(x, h - bottom + 4);
				c.stroke();
				const words = (t / size).toFixed(places) + " " + name, half = c.measureText(words).width / 2;
				text(c, words, Math.min(x, left + width - half), h - bottom + 14, "center");
			}
		}

		const tallOf = () => Math.max(90, Math.min(460, rankCount * 30)) + bottom;
		const { canvas, redraw } = chart("timeline", "Timeline of the calls of all ranks", tallOf, (c, w, h) => {
			width = w - left - 8;
			high = h - bottom;
			const shown = view.end - view.first, tall = high / shown;
			let note = "";
			drawAxis(c, h);
			c.save();
			c.beginPath();
			c.rect(left, 0, width, high);
			c.clip();
			if (tall >= detailed) {
				for (let r = view.first; r < view.end; r++) {
					const pad = Math.min(6, tall * 0.16);
					drawRow(c, rows[r], (r - view.first) * tall + pad, tall - 2 * pad);
				}
				if ($("arrows").checked) note = drawArrows(c, tall);
			} else {
				const per = Math.ceil(3 / tall);
				for (let r = view.first; r < view.end; r += per) {
					drawMean(c, rows.slice(r, Math.min(view.end, r + per)), (r - view.first) * tall, per * tall - 0.5);
				}
				note = ", a line is the mean of " + many(per, "rank", "ranks") + ": zoom into fewer for their calls";
			}
			c.restore();
			const skip = Math.ceil(16 / tall);
			for (let r = view.first; r < view.end; r += skip) {
				text(c, String(r), left - 8, Math.max(5, (r - view.first + 0.5) * tall), "right");
			}
			if (tall * shown > 40) text(c, "rank", 4, 8, "left");
			if (drag) {
				c.fillStyle = colour("accent");
				c.globalAlpha = 0.18;
				const b = box();
				c.fillRect(b.x, b.y, b.w, b.h);
				c.globalAlpha = 1;
			}
			$("view").textContent = time(Math.round(view.from)) + " to " + time(Math.round(view.to)) + ", " +
				rangeOf(view.first, view.end - 1) + note;
			canvas.dataset.from = view.from;
			canvas.dataset.to = view.to;
			canvas.dataset.ranks = view.first + "-" + view.end;
		}, (x, y) => {
			if (drag || x < left || y > high) return "";
			const r = view.first + Math.floor(y / high * (view.end - view.first)), row = rows[r];
			if (!row) return "";
			const t = tOf(x), near = (view.to - view.from) / width * 2, [a, b] = visible(row);
			for (let i = b - 1; i >= a; i--) {
				if (row.begin[i] - near > t || row.end[i] + near < t) continue;
				const took = time(row.end[i] - row.begin[i]), at = "from " + time(row.begin[i]) + ", ";
				if (row.site[i] === joined) {
					return "rank " + r + ": " + many(row.bytes[i], "call", "calls") + "\n" + at + "within " + took + ", " +
						time(row.peer[i]) + " in calls";
				}
				const words = ["rank " + r + ": " + siteName(row.site[i]), at + "for " + took];
				if (row.bytes[i] > 0) words.push(bytes(row.bytes[i]));
				if (row.peer[i] >= 0) words.push("peer: rank " + row.peer[i]);
				if (row.waited[i] > 0) words.push("waits for " + time(row.waited[i]));
				return words.join("\n");
			}
			return "rank " + r + " computes";
		});

		// box is the part of the chart that a drag has marked: all ranks in view if it is flat.
		function box() {
			const x = Math.max(left, Math.min(drag.x, drag.toX));
			const w = Math.min(left + width, Math.max(drag.x, drag.toX)) - x;
			const flat = Math.abs(drag.toY - drag.y) < 14;
			const y = flat ? 0 : Math.max(0, Math.min(drag.y, drag.toY));
			return { x, y, w, h: (flat ? high : Math.min(high, Math.max(drag.y, drag.toY))) - y, flat };
		}
		const point = e => {
			const r = canvas.getBoundingClientRect();
			return [e.clientX - r.left, e.clientY - r.top];
		};
		canvas.tabIndex = 0;
		canvas.addEventListener("pointerdown", e => {
			if (e.button !== 0) return;
			const [x, y] = point(e);
			drag = { x, y, toX: x, toY: y };
			canvas.setPointerCapture(e.pointerId);
			showTip("");
		});
		canvas.addEventListener("pointermove", e => {
			if (!drag) return;
			[drag.toX, drag.toY] = point(e);
			redraw();
		});
		canvas.addEventListener("pointercancel", () => { drag = null; redraw(); });
		canvas.addEventListener("pointerup", () => {
			if (!drag) return;
			const b = box(), each = high / (view.end - view.first), v = { ...view };
			drag = null;
			if (b.w < 4) { redraw(); return; }
			[v.from, v.to] = [tOf(b.x), tOf(b.x + b.w)];
			if (!b.flat) {
				v.first = view.first + Math.floor(b.y / each);
				v.end = view.first + Math.ceil((b.y + b.h) / each);
			}
			show(v);
		});
		canvas.addEventListener("dblclick", () => scale(4));
		canvas.addEventListener("wheel", e => {
			if (!e.ctrlKey) return;
			e.preventDefault();
			const t = tOf(point(e)[0]), f = e.deltaY > 0 ? 1.25 : 0.8;
			show({ ...view, from: t - (t - view.from) * f, to: t + (view.to - t) * f });
		}, { passive: false });
		canvas.addEventListener("keydown", e => {
			const does = { "+": () => scale(0.5), "=": () => scale(0.5), "-": () => scale(2), ArrowLeft: () => move(-0.25),
				ArrowRight: () => move(0.25), ArrowUp: () => move(0, -0.25), ArrowDown: () => move(0, 0.25) }[e.key];
			if (!does || e.ctrlKey || e.metaKey || e.altKey) return;
			e.preventDefault();
			does();
		});
		const whole = () => show({ from: 0, to: length, first: 0, end: rankCount });
		for (const [id, does] of [["zoom-in", () => scale(0.5)], ["zoom-out", () => scale(2)], ["earlier", () => move(-0.5)],
			["later", () => move(0.5)], ["whole", whole]]) $(id).addEventListener("click", does);
		$("arrows").addEventListener("change", redraw);
	})();
	document.documentElement.dataset.ready = "yes";
})();
