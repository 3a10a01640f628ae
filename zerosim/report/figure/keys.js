// The keyboard, on a panel that has the focus: all that the pointer can do, and what it can not (the help tells them).

const PAN = 0.1; // of the window

const KEYS = {
  ArrowLeft: (view) => view.pan(-PAN * (view.window.end - view.window.start)),
  ArrowRight: (view) => view.pan(PAN * (view.window.end - view.window.start)),
  ArrowUp: (view, panel) => view.looking.goLane(panel, -1),
  ArrowDown: (view, panel) => view.looking.goLane(panel, 1),
  "+": (view) => view.zoomBy(0.5),
  "=": (view) => view.zoomBy(0.5),
  "-": (view) => view.zoomBy(2),
  "−": (view) => view.zoomBy(2),
  0: (view) => view.fit(),
  Home: (view) => view.fit(),
  j: (view, panel) => view.looking.goOp(panel, 1),
  k: (view, panel) => view.looking.goOp(panel, -1),
  c: (view) => view.looking.goCause(),
  Enter: (view) => { if (view.looking.focus) view.zoomTo(view.looking.focus); },
  Escape: (view) => view.looking.close(),
  "?": (view) => view.controls.toggleHelp(),
};

function listenKeys(view, panel) {
  panel.over.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    if (act(view, panel) !== false) event.preventDefault(); // false: nothing there, so the page may scroll
  });
  panel.over.addEventListener("blur", () => view.looking.hover(null));
}

const TYPED_IN = "textarea, select, [contenteditable], input:not([type=range], [type=checkbox], [type=radio])";

/** The help is asked for from anywhere on the page, but where a question mark is typed. */
function listenAnywhere(view) {
  document.addEventListener("keydown", (event) => {
    const other = event.key !== "?" || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey;
    if (other || event.target.closest?.(TYPED_IN)) return;
    event.preventDefault();
    view.controls.toggleHelp();
  }, { signal: view.stop.signal });
}
