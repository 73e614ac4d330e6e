"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const video = $("video"), strip = $("strip"), head = $("head"), tip = $("tip");
  const buttons = [...document.querySelectorAll(".step")], segments = [...document.querySelectorAll(".seg")];
  const length = data.length_s, steps = data.steps;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let at = 0;            // seconds shown when there is no video to ask
  let current = -1, loop = -1;

  const clock = (s) => {
    s = Math.max(0, Math.floor(s));
    const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60, r = String(s % 60).padStart(2, "0");
    return h ? `${h}:${String(m).padStart(2, "0")}:${r}` : `${m}:${r}`;
  };
  const ready = () => video.readyState > 0;
  const now = () => (ready() ? video.currentTime : at);
  // the shortest step that holds the second, so that a step inside another can be reached
  const stepAt = (s) => {
    let found = -1;
    steps.forEach(([a, b], i) => {
      if (s >= a - 1e-3 && (s < b - 1e-3 || (a === b && s < a + 0.05)) &&
          (found < 0 || b - a < steps[found][1] - steps[found][0])) found = i;
    });
    return found;
  };

  function seek(seconds, play) {
    at = Math.min(Math.max(0, seconds), length);
    if (ready()) {
      video.currentTime = at;
      if (play) video.play().catch(() => {});
    }
    show();
  }
  function go(index, play = true) {
    if (!steps[index]) return;
    if (loop >= 0) setLoop(index);
    seek(steps[index][0], play);
    mark(index);
    history.replaceState(null, "", `#step=${index + 1}`);
  }
  function mark(index) {
    if (index === current) return;
    current = index;
    [buttons, segments].forEach((all) => all.forEach((e, i) => e.classList.toggle("on", i === index)));
    buttons.forEach((b, i) => (i === index ? b.setAttribute("aria-current", "true") : b.removeAttribute("aria-current")));
    $("now-name").textContent = index < 0 ? "Between steps" : `${index + 1}. ${data.names[index]}`;
    if (index >= 0) {
      const list = $("steps"), own = buttons[index].parentElement;
      if (list.scrollHeight > list.clientHeight)
        list.scrollTo({ top: own.offsetTop - list.offsetTop - list.clientHeight / 3, behavior: still || video.paused ? "auto" : "smooth" });
    }
  }
  function show() {
    const s = now();
    if (loop >= 0 && ready() && !video.paused && s >= steps[loop][1]) { video.currentTime = steps[loop][0]; return; }
    head.style.left = length ? `${(100 * s) / length}%` : "0";
    $("now-time").textContent = `${clock(s)} / ${clock(length)}`;
    mark(stepAt(s));
    strip.setAttribute("aria-valuenow", s.toFixed(1));
    strip.setAttribute("aria-valuetext", `${clock(s)}, ${current < 0 ? "between steps" : data.names[current]}`);
    if (current >= 0) {
      const [a, b] = steps[current];
      buttons[current].style.setProperty("--done", `${b > a ? Math.min(100, (100 * (s - a)) / (b - a)) : 100}%`);
    }
  }
  function setLoop(index) {
    loop = index;
    $("loop").setAttribute("aria-pressed", String(index >= 0));
  }
  const toggle = () => (video.paused ? video.play().catch(() => {}) : video.pause());
  const next = () => { const i = steps.findIndex(([a]) => a > now() + 0.05); if (i >= 0) go(i); };
  const previous = () => {
    // as in any player: back to the start of this step, or to the one before when just begun
    let i = -1;
    steps.forEach(([a], k) => { if (a < now() - 1.5) i = k; });
    go(Math.max(0, i));
  };

  // ---- the bar
  const second = (event, box) => {
    const r = box.getBoundingClientRect();
    return (Math.min(Math.max(0, event.clientX - r.left), r.width) / r.width) * length;
  };
  const scrub = (box) => {
    box.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      box.setPointerCapture(e.pointerId);
      seek(second(e, box));
    });
    box.addEventListener("pointermove", (e) => { if (box.hasPointerCapture(e.pointerId)) seek(second(e, box)); });
  };
  scrub(strip);
  strip.addEventListener("pointermove", (e) => {
    const s = second(e, strip), i = stepAt(s), r = strip.getBoundingClientRect();
    tip.hidden = false;
    tip.textContent = `${clock(s)}  ${i < 0 ? "" : data.names[i]}`;
    const half = tip.offsetWidth / 2;
    tip.style.left = `${Math.min(Math.max(half, e.clientX - r.left), r.width - half)}px`;
  });
  strip.addEventListener("pointerleave", () => { tip.hidden = true; });

  // ---- buttons
  buttons.forEach((b, i) => b.addEventListener("click", (e) => { e.preventDefault(); go(i); }));
  $("play").addEventListener("click", toggle);
  $("next").addEventListener("click", next);
  $("previous").addEventListener("click", previous);
  $("loop").addEventListener("click", () => setLoop(loop >= 0 ? -1 : current));
  $("speed").addEventListener("change", (e) => { video.playbackRate = Number(e.target.value); });
  $("copy").addEventListener("click", async (e) => {
    const text = steps.map(([a], i) => `${clock(a)} ${data.names[i]}`).join("\n"), button = e.currentTarget;
    try { await navigator.clipboard.writeText(text); }
    catch {
      const area = document.body.appendChild(document.createElement("textarea"));
      area.value = text; area.select(); document.execCommand("copy"); area.remove();
    }
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  });
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("stepformer-theme", root.dataset.theme); } catch { /* a file may have no storage */ }
  });
  try {
    const kept = localStorage.getItem("stepformer-theme");
    if (kept) document.documentElement.dataset.theme = kept;
  } catch { /* the system's choice, then */ }
  const find = $("find");
  if (find) find.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    buttons.forEach((b, i) => { b.parentElement.hidden = !data.names[i].toLowerCase().includes(wanted); });
  });

  // ---- keys
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
    const onButton = e.target.closest("button, summary, a"), act = {
      ArrowLeft: () => seek(now() - 5), ArrowRight: () => seek(now() + 5),
      Home: () => seek(0), End: () => seek(length),
      j: next, n: next, k: previous, p: previous, l: () => $("loop").click(), m: () => { video.muted = !video.muted; },
      ArrowDown: () => { const i = buttons.indexOf(document.activeElement); (buttons[i + 1] || buttons[0])?.focus(); },
      ArrowUp: () => { const i = buttons.indexOf(document.activeElement); (buttons[i - 1] || buttons.at(-1))?.focus(); },
      " ": onButton || e.target === video ? null : toggle,
    }[e.key];
    if (!act && /^[1-9]$/.test(e.key)) { go(Number(e.key) - 1); return; }
    if (act && !(e.target === video && e.key.startsWith("Arrow"))) { e.preventDefault(); act(); }
  });

  // ---- the video
  ["play", "pause"].forEach((name) => video.addEventListener(name, () => {
    $("play").textContent = video.paused ? "Play" : "Pause";
    if (!video.paused) requestAnimationFrame(function tick() { show(); if (!video.paused) requestAnimationFrame(tick); });
  }));
  video.addEventListener("loadedmetadata", () => {
    $("missing").hidden = true;
    if (video.videoWidth) $("screen").style.setProperty("--aspect", `${video.videoWidth} / ${video.videoHeight}`);
    if (at) video.currentTime = at;  // what was asked for before there was a video
  });
  ["loadedmetadata", "timeupdate", "seeking", "seeked"].forEach((name) => video.addEventListener(name, show));
  const lost = () => { $("missing").hidden = false; };
  video.addEventListener("error", lost);
  if (!video.getAttribute("src") || video.error) lost();
  const load = (file) => { if (file) { video.src = URL.createObjectURL(file); video.load(); } };
  $("file").addEventListener("change", (e) => load(e.target.files[0]));
  document.addEventListener("dragover", (e) => e.preventDefault());
  document.addEventListener("drop", (e) => { e.preventDefault(); load(e.dataTransfer.files[0]); });

  const asked = /^#(step|t)=([\d.]+)$/.exec(location.hash);
  if (asked) asked[1] === "step" ? go(Number(asked[2]) - 1, false) : seek(Number(asked[2]));
  show();
})();
