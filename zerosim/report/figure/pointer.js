// The pointer: wheel, drag, double click, and two fingers, on the panels and on the strip of the whole step.

const STILL = 4; // pixels: a shorter way is a click
const GESTURE = 400; // ms without a turn of the wheel: what follows is meant for the page again
const NOTCH = 0.0016; // of zoom a pixel of the wheel

/** Listens to a panel's upper canvas. */
function listen(view, panel) {
  const fingers = new Map();
  let drag = null;
  const place = (event) => {
    const box = panel.over.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  panel.over.addEventListener("wheel", (event) => wheel(view, panel, event, place(event)), { passive: false });
  panel.over.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const [x, y] = place(event);
    fingers.set(event.pointerId, [x, y]);
    panel.over.setPointerCapture(event.pointerId);
    drag = { x, y, moved: false, select: event.shiftKey, window: { ...view.window }, apart: apart(fingers) };
  });
  panel.over.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [x, y]);
    if (drag && fingers.size === 2) pinch(view, panel, drag, fingers);
    else if (drag) moved(view, panel, drag, x, y);
    else view.looking.hover(panel.at(x, y), event.clientX, event.clientY);
  });
  panel.over.addEventListener("pointerup", (event) => {
    fingers.delete(event.pointerId);
    if (!drag) return;
    if (view.selection) view.zoomToSelection();
    else if (!drag.moved) view.looking.pick(panel.at(...place(event)));
    drag = null;
  });
  panel.over.addEventListener("pointercancel", (event) => { // the browser took the pointer: nothing was meant
    fingers.delete(event.pointerId);
    view.select(null);
    drag = null;
  });
  panel.over.addEventListener("pointerleave", () => { if (!drag) view.looking.hover(null); });
  panel.over.addEventListener("dblclick", (event) => view.zoomTo(panel.at(...place(event))));
}

/** Zooms around the pointer, or moves sideways; where all is shown already, the page goes on scrolling. */
function wheel(view, panel, event, [x, y]) {
  const lines = event.deltaMode === 1 ? 16 : 1;
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  const scale = panel.scale();
  if (Math.abs(sideways) > Math.abs(event.deltaY) || event.shiftKey) {
    event.preventDefault();
    view.pan((sideways * lines) / scale.perSecond);
    view.looking.hover(panel.at(x, y), event.clientX, event.clientY);
    return;
  }
  const same = event.timeStamp - (view.wheeled ?? -Infinity) < GESTURE;
  if (event.deltaY > 0 && view.isFit() && !event.ctrlKey && !same) return;
  event.preventDefault();
  view.wheeled = event.timeStamp;
  const factor = Math.exp(Math.max(Math.min(event.deltaY * lines * NOTCH, 1), -1));
  view.zoomBy(factor, scale.moment(Math.min(Math.max(x, scale.left), scale.left + scale.width)));
  view.looking.hover(panel.at(x, y), event.clientX, event.clientY); // another op may be there now
}

function moved(view, panel, drag, x, y) {
  drag.moved ||= Math.hypot(x - drag.x, y - drag.y) > STILL;
  if (!drag.moved) return;
  const scale = panel.scale();
  if (drag.select) {
    const to = scale.moment(Math.min(Math.max(x, scale.left), scale.left + scale.width));
    view.select({ from: scale.moment(drag.x), to });
    return;
  }
  const away = (drag.x - x) / scale.perSecond;
  view.zoom(drag.window.start + away, drag.window.end + away, true);
}

const apart = (fingers) => {
  const [one, other] = [...fingers.values()];
  return other ? Math.max(Math.abs(one[0] - other[0]), 10) : 0;
};

function pinch(view, panel, drag, fingers) {
  const now = apart(fingers);
  drag.moved = true;
  if (drag.apart) {
    const [one, other] = [...fingers.values()];
    view.zoomBy(drag.apart / now, panel.scale().moment((one[0] + other[0]) / 2));
  }
  drag.apart = now;
}

/** On the strip a click or drag moves the window there. */
function listenStrip(view, controls) {
  const { strip } = controls;
  let held = false;
  const go = (event) => {
    const moment = controls.stripScale().moment(event.clientX - strip.getBoundingClientRect().left);
    const half = (view.window.end - view.window.start) / 2;
    view.zoom(moment - half, moment + half, true);
  };
  strip.addEventListener("pointerdown", (event) => {
    held = true;
    strip.setPointerCapture(event.pointerId);
    go(event);
  });
  strip.addEventListener("pointermove", (event) => { if (held) go(event); });
  strip.addEventListener("pointerup", () => { held = false; });
  strip.addEventListener("pointercancel", () => { held = false; });
}
