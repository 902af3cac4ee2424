"use strict";
(async function () {
  const $ = id => document.getElementById(id);
  const raw = Uint8Array.from(atob($("data").textContent), c => c.charCodeAt(0));
  const text = await new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const D = JSON.parse(text);
  const COLORS = ["#2f6fdb", "#9db8e8", "#d64545", "#2a9d6f", "#e08a2e", "#8a56c9", "#1f9fb5"];
  const CLASSES = ["matmul, attention", "other launches", "computing waits", "all_gather", "reduce_scatter", "all_reduce", "other collectives"];
  const bytes = n => n >= 2 ** 30 ? (n / 2 ** 30).toFixed(2) + " GiB" : n >= 2 ** 20 ? (n / 2 ** 20).toFixed(1) + " MiB" : n >= 1024 ? (n / 1024).toFixed(1) + " KiB" : n + " B";
  const ms = x => x >= 100 ? x.toFixed(1) : x >= 1 ? x.toFixed(2) : x.toFixed(4);
  const el = (tag, cls, txt) => { const e = document.createElement(tag); if (cls) e.className = cls; if (txt !== undefined) e.textContent = txt; return e; };
  const [A, B] = [D.timelines[0], D.timelines[D.timelines.length - 1]];

  // Cards.
  $("title").textContent = D.title;
  const gap = B.makespan > 0 ? Math.max(0, 1 - D.bound / B.makespan) : 0;
  const S = D.stages, most = f => Math.max(...D.timelines.map(f));
  $("certificate").textContent = S ? `${D.world} ranks in ${D.timelines.length} stages, which wait ${(100 * S.bubble).toFixed(1)}% of their time.` : `${D.world} ranks. Lower bound ${ms(D.bound)} ms: no order of these nodes can be more than ${(100 * gap).toFixed(1)}% faster than this schedule.`;
  const card = (k, a, b, fmt, better) => {
    const c = el("div", "card");
    c.append(el("div", "k", k), el("div", "v" + (b < a * 0.9995 ? better : b > a * 1.0005 ? (better ? " bad" : "") : ""), fmt(b)));
    if (!S) c.append(el("div", "w", "was " + fmt(a)));
    $("cards").append(c);
  };
  const one = (k, key, fmt, better) => S ? card(k + ", most of a stage", 0, most(t => t[key]), fmt, "") : card(k, A[key], B[key], fmt, better);
  one("makespan", "makespan", x => ms(x) + " ms", " good");
  one("exposed communication", "exposed", x => ms(x) + " ms", " good");
  one("peak memory", "peak", bytes, " good");
  one("collectives", "collectives", x => "" + x, " good");
  one("nodes", "nodes", x => "" + x, "");
  for (const h of D.helps || []) $("helps").append(el("p", "", "would help: " + h));
  CLASSES.forEach((c, i) => { const s = el("span"); const k = el("i"); k.style.background = COLORS[i]; s.append(k, c); $("legend").append(s); });

  // Timelines: all on one time axis; view is the visible interval.
  const span = most(t => t.makespan) || 1;
  const view = { from: 0, to: span };
  const GUTTER = 110, ROW = 22, HEAD = 20;
  const lanes = [];
  for (const t of D.timelines) {
    lanes.push({ label: t.label + ": " + ms(t.makespan) + " ms", t });
    t.rows.forEach(r => lanes.push({ row: r, t }));
  }
  const time = $("time"), memory = $("memory");
  time.style.height = HEAD + lanes.length * ROW + 6 + "px";
  memory.style.height = "180px";
  const fit = c => { const r = devicePixelRatio || 1, w = c.clientWidth, h = c.clientHeight; if (c.width !== Math.round(w * r) || c.height !== Math.round(h * r)) { c.width = Math.round(w * r); c.height = Math.round(h * r); } const g = c.getContext("2d"); g.setTransform(r, 0, 0, r, 0, 0); g.clearRect(0, 0, w, h); return [g, w, h]; };
  const x = (t, w) => GUTTER + (t - view.from) / (view.to - view.from) * (w - GUTTER - 8);
  const ticks = (g, w, h) => {
    const step0 = (view.to - view.from) / 8, mag = 10 ** Math.floor(Math.log10(step0)), step = [1, 2, 5, 10].map(k => k * mag).find(s => s >= step0);
    g.font = "11px system-ui"; g.textBaseline = "top"; g.textAlign = "center";
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) { const p = x(t, w); g.fillStyle = "#eceff4"; g.fillRect(p, HEAD - 4, 1, h); g.fillStyle = "#66707f"; g.fillText(+t.toPrecision(6) + " ms", p, 3); }
  };
  // first span that ends after t, spans being in order of time
  const first = (s, t) => { let a = 0, b = s.length / 3; while (a < b) { const m = (a + b) >> 1; if (s[3 * m] + s[3 * m + 1] < t) a = m + 1; else b = m; } return a; };
  function draw() {
    const [g, w, h] = fit(time);
    ticks(g, w, h);
    lanes.forEach((l, i) => {
      const y = HEAD + i * ROW;
      g.textBaseline = "middle"; g.textAlign = "left"; g.font = l.label ? "600 12px system-ui" : "12px system-ui"; g.fillStyle = l.label ? "#1c2430" : "#66707f";
      g.fillText(l.label || l.row.name, l.label ? 6 : 14, y + ROW / 2);
      if (!l.row) return;
      g.fillStyle = "#f5f7fa"; g.fillRect(GUTTER, y + 2, w - GUTTER - 8, ROW - 4);
      const s = l.row.spans, right = w - 8;
      let lastP = -1, lastC = -1;
      for (let k = first(s, view.from); 3 * k < s.length && s[3 * k] < view.to; k++) {
        const c = s[3 * k + 2] % 8, p = Math.max(x(s[3 * k], w), GUTTER), q = Math.min(x(s[3 * k] + s[3 * k + 1], w), right);
        const P = Math.floor(p * 2) / 2;
        if (q - p < 0.5 && P === lastP && c === lastC) continue; // already painted this half pixel
        g.fillStyle = COLORS[c]; g.fillRect(p, y + 2, Math.max(q - p - (q - p > 3 ? 0.6 : 0), 0.5), ROW - 4);
        lastP = P; lastC = c;
      }
    });
    drawMemory();
  }
  const top = Math.max(A.peak, B.peak) || 1;
  function drawMemory() {
    const [g, w, h] = fit(memory);
    const y = v => h - 18 - v / top * (h - 34);
    g.font = "11px system-ui"; g.fillStyle = "#66707f"; g.textAlign = "left"; g.textBaseline = "middle";
    for (const f of [0, 0.5, 1]) { g.fillStyle = "#eceff4"; g.fillRect(GUTTER, y(top * f), w - GUTTER - 8, 1); g.fillStyle = "#66707f"; g.fillText(bytes(top * f), 14, y(top * f)); }
    g.save(); g.beginPath(); g.rect(GUTTER, 0, w - GUTTER - 8, h); g.clip();
    D.timelines.forEach((t, i) => {
      g.beginPath(); g.strokeStyle = i ? "#2f6fdb" : "#b8c0cc"; g.lineWidth = i ? 1.6 : 1.3;
      t.memT.forEach((at, k) => { const px = x(at, w); if (k) g.lineTo(px, y(t.memV[k - 1])); else g.moveTo(px, y(t.memV[k])); g.lineTo(px, y(t.memV[k])); });
      g.lineTo(x(t.makespan, w), y(t.memV[t.memV.length - 1])); g.stroke();
      g.fillStyle = g.strokeStyle; g.beginPath(); g.arc(x(t.peakAt, w), y(t.peak), 4, 0, 7); g.fill();
    });
    g.restore();
    g.textAlign = "right"; g.fillStyle = "#66707f"; g.fillText("grey: before, blue: after; dots: peaks", w - 14, h - 8);
  }
  function zoomable(c) {
    c.addEventListener("wheel", e => {
      e.preventDefault();
      const w = c.clientWidth, f = Math.min(1, Math.max(0, (e.offsetX - GUTTER) / (w - GUTTER - 8))), at = view.from + f * (view.to - view.from);
      const k = Math.exp(e.deltaY * 0.0015), len = Math.min(span, Math.max((view.to - view.from) * k, span * 1e-6));
      view.from = Math.max(0, Math.min(span - len, at - f * len)); view.to = view.from + len; draw();
    }, { passive: false });
    let drag = null;
    c.addEventListener("mousedown", e => { drag = { x: e.clientX, from: view.from, to: view.to, moved: false }; });
    addEventListener("mousemove", e => {
      if (!drag) return;
      if (Math.abs(e.clientX - drag.x) > 3) drag.moved = true;
      const len = drag.to - drag.from, d = (drag.x - e.clientX) / (c.clientWidth - GUTTER - 8) * len;
      view.from = Math.max(0, Math.min(span - len, drag.from + d)); view.to = view.from + len; draw();
    });
    addEventListener("mouseup", () => { if (drag && drag.moved) c.dataset.dragged = "1"; drag = null; });
    c.addEventListener("dblclick", () => { view.from = 0; view.to = span; draw(); });
  }
  zoomable(time); zoomable(memory);
  const tip = $("tip");
  const show = (e, s) => { tip.hidden = !s; if (!s) return; tip.textContent = s; tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 10) + "px"; tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 10) + "px"; };
  const at = (e, c) => view.from + (e.offsetX - GUTTER) / (c.clientWidth - GUTTER - 8) * (view.to - view.from);
  time.addEventListener("mousemove", e => {
    const l = lanes[Math.floor((e.offsetY - HEAD) / ROW)], t = at(e, time);
    if (!l || !l.row || e.offsetX < GUTTER) return show(e, "");
    const s = l.row.spans, slack = (view.to - view.from) / time.clientWidth, k = first(s, t - slack);
    if (3 * k >= s.length || s[3 * k] > t + slack) return show(e, "");
    show(e, `${l.t.names[s[3 * k + 2] >> 3]}\n${ms(s[3 * k + 1])} ms from ${ms(s[3 * k])} ms`);
  });
  memory.addEventListener("mousemove", e => {
    if (e.offsetX < GUTTER) return show(e, "");
    const t = at(e, memory);
    const value = tl => { let a = 0, b = tl.memT.length; while (a < b) { const m = (a + b) >> 1; if (tl.memT[m] <= t) a = m + 1; else b = m; } return a ? tl.memV[a - 1] : tl.memV[0]; };
    show(e, `${ms(Math.max(0, t))} ms\nbefore ${bytes(value(A))}, after ${bytes(value(B))}`);
  });
  for (const c of [time, memory]) c.addEventListener("mouseleave", e => show(e, ""));
  function cells(tr, list) { for (const [v, cls, title] of list) { const td = el("td", cls, v); if (title) td.title = title; tr.append(td); } return tr; }
  function head(table, names) { const tr = el("tr"); names.forEach(([n, cls]) => tr.append(el("th", cls, n))); table.append(tr); return tr; }
  let liveShown = false;
  function live() {
    const box = $("live"); box.textContent = "";
    if (liveShown = !liveShown) for (const t of D.timelines) {
      const table = el("table"); head(table, [[`live at the peak ${t.label}, ${bytes(t.peak)}`], ["type"], ["bytes", "n"]]);
      t.live.forEach(v => table.append(cells(el("tr"), [["%" + v.name, "name"], [v.type, "name"], [bytes(v.bytes), "n"]])));
      if (t.liveMore) table.append(cells(el("tr"), [[`${t.liveMore} smaller ones`], [""], [bytes(t.liveRest), "n"]]));
      box.append(table);
    }
  }
  memory.addEventListener("click", () => { if (memory.dataset.dragged) { delete memory.dataset.dragged; return; } live(); });

  // Collectives.
  const COLS = [["collective", c => c.name], ["operation", c => c.op], ["group", c => c.group], ["members", c => c.members, 1], ["bytes", c => c.bytes, 1, bytes], ["ms", c => c.ms, 1, ms],
    ["starts at", c => c.begin, 1, ms], ["hidden", c => c.hidden, 1, ms], ["exposed", c => c.exposed, 1, ms], ["hidden by", c => (c.by || []).join("; ")], ["why no further", c => c.limit || ""]];
  let sort = { col: 6, dir: 1 };
  const SHOWN = 400;
  function comms() {
    const q = $("filter").value.toLowerCase();
    let list = D.comms.filter(c => !q || COLS.some(k => String(k[1](c)).toLowerCase().includes(q)));
    const key = COLS[sort.col][1];
    list.sort((a, b) => { const u = key(a), v = key(b); return (u < v ? -1 : u > v ? 1 : 0) * sort.dir; });
    const table = $("comms"); table.textContent = "";
    const tr = head(table, COLS.map((k, i) => [k[0] + (i === sort.col ? (sort.dir > 0 ? " ↑" : " ↓") : ""), k[2] ? "n" : ""]));
    [...tr.children].forEach((th, i) => th.onclick = () => { sort = { col: i, dir: i === sort.col ? -sort.dir : COLS[i][2] ? -1 : 1 }; comms(); });
    for (const c of list.slice(0, SHOWN)) table.append(cells(el("tr"), COLS.map((k, i) => [k[3] ? k[3](k[1](c)) : k[1](c), k[2] ? "n" + (i === 8 && c.exposed > 0 ? " bad" : "") : "name"])));
    $("commcount").textContent = `${list.length} of ${D.comms.length}` + (list.length > SHOWN ? `, the first ${SHOWN} shown; filter or sort for others` : "");
  }
  $("filter").oninput = comms;
  comms();

  if (D.frontier && D.frontier.length) {
    $("frontierbox").hidden = false;
    head($("frontier"), [["cap, share of the input's peak", "n"], ["makespan ms", "n"], ["peak", "n"]]);
    D.frontier.forEach(p => $("frontier").append(cells(el("tr"), [[Math.round(p.cap * 100) + "%", "n"], [ms(p.makespan), "n"], [bytes(p.peak), "n"]])));
  }

  // Recomputation over budgets.
  const curve = $("curve");
  function drawCurve() {
    if (!D.curve) return;
    const [g, w, h] = fit(curve), maxX = Math.max(...D.curve.map(p => p.saved)) || 1, maxY = Math.max(...D.curve.map(p => p.recompute)) || 1;
    const px = p => 70 + p.saved / maxX * (w - 100), py = p => h - 34 - p.recompute / maxY * (h - 56);
    g.font = "11px system-ui"; g.fillStyle = "#66707f"; g.textBaseline = "middle";
    for (const f of [0, 0.5, 1]) {
      g.fillStyle = "#eceff4"; g.fillRect(70, h - 34 - f * (h - 56), w - 100, 1); g.fillRect(70 + f * (w - 100), 22, 1, h - 56);
      g.fillStyle = "#66707f"; g.textAlign = "right"; g.fillText(ms(maxY * f) + " ms", 64, h - 34 - f * (h - 56)); g.textAlign = "center"; g.fillText(bytes(maxX * f), 70 + f * (w - 100), h - 20);
    }
    g.textAlign = "left"; g.fillText("time repeated in backward", 70, 10); g.textAlign = "right"; g.fillText("saved by forward", w - 30, h - 8);
    g.strokeStyle = "#2f6fdb"; g.lineWidth = 1.6; g.beginPath(); D.curve.forEach((p, i) => i ? g.lineTo(px(p), py(p)) : g.moveTo(px(p), py(p))); g.stroke();
    g.fillStyle = "#2f6fdb"; D.curve.forEach(p => { g.beginPath(); g.arc(px(p), py(p), 4, 0, 7); g.fill(); });
    curve.onmousemove = e => {
      const near = D.curve.find(p => Math.hypot(px(p) - e.offsetX, py(p) - e.offsetY) < 9);
      show(e, near ? `budget ${near.budget}: ${near.values} values, ${bytes(near.saved)} saved\n${near.ops} operations, ${ms(near.recompute)} ms repeated\npeaks: forward ${bytes(near.forward)}, backward ${bytes(near.backward)}` : "");
    };
    curve.onmouseleave = e => show(e, "");
  }
  if (D.curve) {
    $("curvebox").hidden = false; curve.style.height = "260px";
    head($("curvetable"), [["budget", "n"], ["saved", "n"], ["values", "n"], ["repeated ms", "n"], ["operations", "n"], ["forward peak", "n"], ["backward peak", "n"]]);
    D.curve.forEach(p => $("curvetable").append(cells(el("tr"), [[p.budget, "n"], [bytes(p.saved), "n"], [p.values, "n"], [ms(p.recompute), "n"], [p.ops, "n"], [bytes(p.forward), "n"], [bytes(p.backward), "n"]])));
  }

  // Passes.
  head($("passes"), [["pass"], ["changed"], ["ms", "n"], ["verify ms", "n"], ["statistics"]]);
  D.passes.forEach(p => $("passes").append(cells(el("tr"), [[p.spec, "name"], [p.changed ? "yes" : "no"], [ms(p.ms), "n"], [ms(p.verify), "n"], [(p.stats || []).map(s => `${s.name} ${+s.value.toPrecision(6)}`).join(", "), "name"]])));

  // IR: rows are made for what is visible only.
  const versions = D.versions.map(v => { let i = 0; return { label: v.label, ids: v.lines.map(d => i += d) }; });
  const ROWH = 18;
  for (const [side, def] of [["left", 0], ["right", versions.length - 1]]) { versions.forEach((v, i) => { const o = el("option", "", v.label); o.value = i; $(side).append(o); }); $(side).value = def; $(side).onchange = compare; }
  // A line stays where it is if it lies on a longest increasing run of positions; others moved.
  function stay(a, b) {
    const pos = new Map(); a.forEach((id, i) => pos.set(id, i));
    const tails = [], prev = new Int32Array(b.length).fill(-1), at = [];
    b.forEach((id, j) => { const p = pos.get(id); if (p === undefined) return; let lo = 0, hi = tails.length; while (lo < hi) { const m = (lo + hi) >> 1; if (at[m] < p) lo = m + 1; else hi = m; } prev[j] = lo ? tails[lo - 1] : -1; tails[lo] = j; at[lo] = p; });
    const keep = new Set(); for (let j = tails.length ? tails[tails.length - 1] : -1; j >= 0; j = prev[j]) keep.add(b[j]);
    return keep;
  }
  let panes = [], hit = -1;
  function compare() {
    const L = versions[$("left").value].ids, R = versions[$("right").value].ids, inL = new Set(L), inR = new Set(R), keep = stay(L, R);
    const cls = (id, left) => keep.has(id) ? "" : inL.has(id) && inR.has(id) ? "moved" : left ? "gone" : "only";
    panes = [["irleft", L, true], ["irright", R, false]].map(([id, ids, left]) => { const box = $(id); box.textContent = ""; const pad = el("div"); pad.style.height = ids.length * ROWH + "px"; box.append(pad); const pane = { box, ids, cls: i => cls(ids[i], left), rows: [] }; box.onscroll = () => paint(pane); paint(pane); return pane; });
    const moved = R.filter(id => !keep.has(id) && inL.has(id)).length, added = R.filter(id => !inL.has(id)).length, gone = L.filter(id => !inR.has(id)).length;
    $("diffcount").textContent = `${moved} moved, ${added} new, ${gone} gone`;
  }
  function paint(p) {
    p.rows.forEach(r => r.remove()); p.rows = [];
    const from = Math.max(0, Math.floor(p.box.scrollTop / ROWH) - 5), to = Math.min(p.ids.length, from + Math.ceil(p.box.clientHeight / ROWH) + 12);
    for (let i = from; i < to; i++) { const r = el("div", "row " + p.cls(i) + (p.ids[i] === hit ? " hit" : "")); r.style.top = i * ROWH + "px"; r.append(el("span", "no", i + 1), D.lines[p.ids[i]]); p.box.append(r); p.rows.push(r); }
  }
  $("find").onchange = () => {
    const q = $("find").value.trim().replace(/^%/, ""); if (!q) return;
    hit = D.lines.findIndex(l => l.includes("%" + q + " =") || l.includes("%" + q + ":")); if (hit < 0) hit = D.lines.findIndex(l => l.includes(q));
    panes.forEach(p => { const i = p.ids.indexOf(hit); if (i >= 0) p.box.scrollTop = Math.max(0, i * ROWH - p.box.clientHeight / 2); paint(p); });
  };
  compare();
  draw();
  drawCurve();
  addEventListener("resize", () => { draw(); drawCurve(); panes.forEach(paint); });
  document.documentElement.dataset.ready = Math.round(performance.now()); // milliseconds until everything is drawn; tests look for it
})().catch(e => { document.body.prepend("The report could not be drawn: " + e); document.documentElement.dataset.error = String(e); });
